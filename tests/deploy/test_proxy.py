"""The proxy's image, sidecar and task: built from existing files, unprivileged, and with settings the program reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from queuewatch.proxy.options import parser
from queuewatch.proxy.settings import settings
from tests.deploy.test_deploy import _kustomize

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "proxy.Dockerfile").read_text()
TASK: dict[str, Any] = json.loads((ROOT / "deploy" / "ecs" / "proxied-app.json").read_text())
_APP_POINTS_AT = "http://127.0.0.1:9410"


def test_the_image_is_small_and_unprivileged() -> None:
    """Only the client distribution and its hashed requirements without Spark are copied."""
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    copied = re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.MULTILINE)
    assert copied == ["client", "requirements-proxy.txt"]
    allowed = (ROOT / "deploy" / "proxy.Dockerfile.dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
    assert "--require-hashes" in DOCKERFILE
    requirements = (ROOT / "requirements-proxy.txt").read_text()
    assert "aiohttp==" in requirements
    assert "pyspark" not in requirements


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    """The example application's pod with its sidecar."""
    [deployment] = [document for document in _kustomize("overlays/proxied-app") if document["kind"] == "Deployment"]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def test_the_sidecar_outlives_the_application_and_is_unprivileged(pod: dict[str, Any]) -> None:
    """It is an init container that restarts, and the application is configured with its address."""
    [sidecar] = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "your-registry/queuewatch-proxy:0.1.0"
    assert sidecar["securityContext"]["readOnlyRootFilesystem"] is True
    assert sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    app = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert app == {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_SQS": _APP_POINTS_AT}


def test_the_program_reads_what_sidecar_and_task_set(pod: dict[str, Any]) -> None:
    """The program's help lists each variable, and probes run the program itself."""
    shown = parser({}).format_help()
    proxy = TASK["containerDefinitions"][1]
    names = {entry["name"] for entry in pod["initContainers"][0]["env"]} | {entry["name"] for entry in proxy["environment"]}
    assert names == {"QUEUEWATCH_TO", "QUEUEWATCH_CONSUMER", "QUEUEWATCH_PROXY_REGIONS"}
    for name in names:
        assert name in shown
    assert pod["initContainers"][0]["startupProbe"]["exec"]["command"] == ["queuewatch-proxy", "--check"]
    assert proxy["healthCheck"]["command"][1:] == ["queuewatch-proxy", "--check"]


def test_the_task_s_settings_are_accepted() -> None:
    """The region's endpoint is used, each task has a consumer name of its own, and the application waits for a healthy proxy."""
    import socket

    import botocore.session

    app, proxy = TASK["containerDefinitions"]
    environment = {entry["name"]: entry["value"] for entry in proxy["environment"]}
    made = settings(parser(environment).parse_args([]), environment, botocore.session.Session())
    assert [(upstream.region, upstream.origin) for upstream in made.upstreams.all] == [
        ("eu-west-1", "https://sqs.eu-west-1.amazonaws.com")
    ]
    assert (made.host, made.port, made.consumer) == ("127.0.0.1", 9410, socket.gethostname())
    assert {"name": "AWS_ENDPOINT_URL_SQS", "value": _APP_POINTS_AT} in app["environment"]
    assert app["dependsOn"] == [{"containerName": proxy["name"], "condition": "HEALTHY"}]
    assert TASK["networkMode"] == "awsvpc"
