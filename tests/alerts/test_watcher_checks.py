"""The checks of queuewatch itself find its pods, container and files as the manifests of deploy/kubernetes install them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.checks import watcher
from alerts.config import AlertRulesConfig
from alerts.runbook import runbook_markdown
from streaming.config import load_config
from streaming.config.check import summary
from tests.services.process import ServiceUnavailable
from tests.services.provider import Services

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUBECTL = sorted({c.command for entry in CATALOGUE for c in entry.watcher_checks if c.command.startswith("kubectl ")})


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


JOB = _yaml(KUBERNETES / "base" / "statefulset.yaml")


def _pods() -> Iterator[tuple[str, dict[str, str]]]:
    """Every workload with its pods' labels."""
    common = {k: v for entry in _yaml(KUBERNETES / "base" / "kustomization.yaml")["labels"] for k, v in entry["pairs"].items()}
    yield "job", {**JOB["spec"]["template"]["metadata"]["labels"], **common}
    for file in KUBERNETES.glob("components/collector-*/deployment.yaml"):
        yield file.parent.name, _yaml(file)["spec"]["template"]["metadata"]["labels"]


PODS = dict(_pods())
COLLECTORS = {name for name in PODS if name.startswith("collector-")}


@pytest.mark.parametrize(
    ("check", "selected"),
    [
        (watcher.logs(""), {"job"}),
        (watcher.previous_logs(""), {"job"}),
        (watcher.pods(""), {"job"}),
        (watcher.collector_logs(""), COLLECTORS),
        (watcher.collector_pods(""), COLLECTORS),
    ],
    ids=lambda v: v.what if hasattr(v, "what") else "",
)
def test_a_selector_matches_the_pods_of_the_check(check: Any, selected: set[str]) -> None:
    """The service's own lines are not buried in those of its collectors, or the other way round."""
    words = shlex.split(check.command)
    wanted = dict(pair.split("=") for pair in words[words.index("--selector") + 1].split(","))
    assert len(COLLECTORS) == 3
    assert {name for name, labels in PODS.items() if wanted.items() <= labels.items()} == selected


@pytest.mark.parametrize("command", KUBECTL)
def test_every_kubectl_command_names_the_namespace(command: str) -> None:
    """The example installs into a namespace of its own, which is not the one that kubectl uses by default."""
    namespace = _yaml(KUBERNETES / "overlays" / "example" / "kustomization.yaml")["namespace"]
    assert f"export NAMESPACE='{namespace}'" in watcher.prepare("queuewatch")
    assert command.startswith('kubectl --namespace "$NAMESPACE" ')


def test_the_configuration_is_read_where_it_is() -> None:
    """The file is in the pod, at the path that the container is started with, and not on the operator's machine."""
    [container] = JOB["spec"]["template"]["spec"]["containers"]
    file = container["args"][container["args"].index("--config") + 1]
    inside = f"exec {JOB['kind'].lower()}/{JOB['metadata']['name']} -- queuewatch check-config {file}"
    assert watcher.config("").command == f'kubectl --namespace "$NAMESPACE" {inside}'


@pytest.mark.parametrize(
    ("alert", "shown"),
    [
        ("JobAbsent", "serves http://0.0.0.0:9400/"),
        ("NotPublishing", "reads Kafka topics queuewatch-events at kafka:9092"),
        ("InvalidEvents", "keeps unreadable events in /var/lib/queuewatch/quarantine.ndjson"),
        ("FindingsCapped", "lists up to 100 messages"),
    ],
)
def test_the_summary_shows_what_a_check_looks_for(alert: Any, shown: str) -> None:
    """Whoever is sent to `check-config` finds there what the text promises."""
    lines = list(summary(load_config(KUBERNETES / "base" / "queuewatch.yaml", {})))
    assert [line for line in lines if line.startswith(shown)]
    asking = {entry.name for entry in CATALOGUE if watcher.config("").command in [c.command for c in entry.watcher_checks]}
    assert asking == {"JobAbsent", "NotPublishing", "InvalidEvents", "FindingsCapped"}
    assert alert in asking


@pytest.mark.parametrize("job", ["queuewatch", "monitoring/queuewatch-of-the-payments-team"])
def test_the_scrape_is_that_of_the_configured_job(job: str, tmp_path: Path) -> None:
    """Prometheus may scrape queuewatch under any job label (`alerts.job`), and another program under this name."""
    if missing := [name for name in ("bash", "jq") if shutil.which(name) is None]:
        Services.give_up(ServiceUnavailable(f"not on PATH: {', '.join(missing)}"))
    runbook = runbook_markdown(AlertRulesConfig(job=job))
    prepare = runbook.partition("```sh\n")[2].partition("curl -sS")[0]
    command = next(line.strip() for line in runbook.splitlines() if "/api/v1/targets" in line)
    targets = [{"labels": {"job": name}, "scrapeUrl": name} for name in ("prometheus", "queuewatch-2", job)]
    answer = tmp_path / "targets.json"
    answer.write_text(json.dumps({"data": {"activeTargets": targets}}))
    script = f"{prepare}curl() {{ cat '{answer}'; }}\n{command}"
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["scrapeUrl"] == job


def test_a_restarted_service_shows_its_last_lines() -> None:
    """After a restart, the current log has only the lines of the new process."""
    [check] = [check for check in BY_NAME["JobDown"].watcher_checks if "last lines" in check.look_for]
    assert "--previous" in shlex.split(check.command)


def test_the_opening_names_the_commands_without_kubernetes() -> None:
    """The services and the unit are those of the Compose file and of the page about deploying."""
    opening = runbook_markdown(AlertRulesConfig()).split("\n## All alerts")[0]
    assert "`journalctl --unit queuewatch`" in opening
    names = {"queuewatch", *re.findall(r"`(collect-\w+)`", opening)}
    services = _yaml(DEPLOY / "compose.yaml")["services"]
    assert names == {name for name in services if name.startswith(("queuewatch", "collect-"))}
    assert "`docker compose -f deploy/compose.yaml logs queuewatch`" in opening
