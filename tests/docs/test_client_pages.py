"""The pages for applications, run: their shell blocks and Python, with a local destination in place of the broker."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import uuid
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinks.http import HttpSettings, create_app, serve
from sinks.http.settings import IngestSettings
from sinks.http.staging import Spool
from sinks.store import SnapshotStore
from tests.services import sqs
from tests.spooled import spooled
from tests.waiting import until
from tests.wheels import BUILT, ROOT

BROKER = "kafka://broker:9092/queuewatch-events"
APPLICATION = """
import uuid
import boto3
sqs = boto3.client("sqs")
url = sqs.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="x")
[message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2)["Messages"]
sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} shows no {language}"
    return found


def kinds(folder: Path) -> list[str]:
    """The types of all events in a spool folder."""
    return [event["type"] for event in spooled(folder)]


def bash(script: str, environment: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a block; the first command that fails ends it."""
    return subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=environment
    )


def found_first(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """An environment in which a folder's programs are found before all others."""
    return environment | {"PATH": f"{folder}{os.pathsep}{environment['PATH']}"}


@pytest.mark.slow
def test_the_library_installs_as_the_page_says(tmp_path: Path) -> None:
    """Into an empty environment, without an index, from the folder and from the wheel."""
    venv.create(tmp_path / "venv", symlinks=True)
    programs = tmp_path / "venv" / "bin"
    [packages] = tmp_path.glob("venv/lib/python*/site-packages")
    builder = importlib.util.find_spec("setuptools")
    assert builder is not None
    assert builder.origin is not None
    for pattern in ("setuptools*", "_distutils_hack"):  # what builds it; pip would ask an index for it
        for part in Path(builder.origin).parents[1].glob(pattern):
            (packages / part.name).symlink_to(part)
    shim = programs / "pip"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {programs}/python "$@"\n')
    shim.chmod(0o755)
    shutil.copytree(ROOT / "client", tmp_path / "client", ignore=BUILT)
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment = found_first(programs, dict(os.environ) | offline)
    done = bash("\n".join(blocks("docs/install-client.md", "sh")), environment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the application's library" in done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/install-client.md", "docs/proxy.md"])
def test_an_extra_that_is_shown_exists(page: str) -> None:
    """pip only warns of one that does not."""
    extras = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    shown = set(re.findall(r"client\[(\w+)\]", (ROOT / page).read_text()))
    assert shown
    assert shown <= set(extras)


@pytest.mark.parametrize("page", ["docs/python-service.md", "docs/coverage.md"])
def test_the_commands_of_a_page_send_telemetry(
    application: Path, sqs_environment: dict[str, str], tmp_path: Path, page: str
) -> None:
    """`app.py` is an application that knows nothing of queuewatch."""
    (tmp_path / "app.py").write_text(APPLICATION)
    spool = tmp_path / "spool"
    [script] = blocks(page, "sh")
    script = script.replace(BROKER, f"spool:{spool}").replace("spool:/tmp/telemetry", f"spool:{spool}")
    done = bash(script, found_first(application.parent, sqs_environment), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(spool) == ["sent", "received", "deleted"]


@pytest.mark.parametrize("page", ["README.md", "docs/python-service.md", "docs/coverage.md"])
def test_the_python_of_a_page_runs(application: Path, sqs_environment: dict[str, str], tmp_path: Path, page: str) -> None:
    """Beside what it takes for granted: a queue with a message, and something to do with it."""
    spool = tmp_path / "spool"
    url = sqs.client(sqs_environment["AWS_ENDPOINT_URL_SQS"]).create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    program = f"url, work_on = {url!r}, print\n" + "\n".join(blocks(page, "python")).replace(BROKER, f"spool:{spool}")
    if "sqs = boto3" in program:
        program += "\nsqs.send_message(QueueUrl=url, MessageBody='x')\n"
    command = [str(application), "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=sqs_environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(spool) == (["sent"] if "sqs = boto3" in program else [])


def test_the_event_that_a_reader_sends_with_curl_is_of_now(tmp_path: Path) -> None:
    """One of the past would be a message that has expired: `MessageDropped` pages."""
    settings = HttpSettings(ingest=IngestSettings(Spool(tmp_path / "spool"), token="TOKEN"))
    [script] = [block for block in blocks("docs/status-page.md", "sh") if "curl" in block]
    with serve(create_app(SnapshotStore(), settings), port=0) as server:
        done = bash(script.replace("http://127.0.0.1:9400", server.url), dict(os.environ), tmp_path)
    assert json.loads(done.stdout) == {"accepted": 1, "invalid": 0}, done.stderr
    [file] = (tmp_path / "spool").glob("*.ndjson")
    assert abs(json.loads(file.read_text())["at"] - time.time() * 1000) < 60_000


def test_with_read_access_only_the_page_s_commands_work(sqs_environment: dict[str, str], moto_sqs: Any, tmp_path: Path) -> None:
    """The configuration is the page's; the collector, which would run for ever, is stopped once it has said something."""
    sqs.client(moto_sqs.endpoint).create_queue(QueueName=f"orders-{uuid.uuid4().hex[:8]}")
    [config], [script, _] = blocks("docs/read-access.md", "yaml"), blocks("docs/read-access.md", "sh")
    assert yaml.safe_load(config)["collect"]["sqs"]
    (tmp_path / "queuewatch.yaml").write_text(config)
    environment = found_first(Path(sys.executable).parent, sqs_environment)
    check, collect = script.splitlines()
    assert bash(check, environment, tmp_path).returncode == 0
    with subprocess.Popen(collect.split(), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as collector:
        try:
            until(lambda: "queue_state" in kinds(tmp_path / "spool"), "the collector reports a queue", within_s=60, every_s=0.2)
            collector.send_signal(signal.SIGTERM)
            collector.wait(30)
        finally:
            collector.kill()
