"""The example Alertmanager configuration: routing and inhibition, evaluated by Alertmanager itself."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from alerts.catalogue import BY_NAME, CATALOGUE
from tests.services.prometheus import Binaries, Server, start_alertmanager
from tests.waiting import until

FOLDER = Path(__file__).parents[2] / "deploy" / "alertmanager"
FILE = FOLDER / "alertmanager.yml"
CONFIG: dict[str, Any] = yaml.safe_load(FILE.read_text())

QUEUE = {"job": "queuewatch", "system": "aws_sqs", "scope_id": "1/eu-west-1", "queue": "orders", "rulesgroup": "queuewatch"}
OTHER = QUEUE | {"queue": "payments"}

ROUTES = [
    ("critical on a queue pages", "QueueStalled", "critical", "page-everybody"),
    ("a stuck group pages", "GroupStuck", "critical", "page-everybody"),
    ("expiring dead letters page", "DeadLetterExpiring", "critical", "page-everybody"),
    ("a loss pages at once", "MessageDropped", "critical", "page-everybody"),
    ("a new dead letter has a channel of its own", "DeadLetterArrived", "warning", "dead-letters"),
    ("a dead letter that was raised to critical pages", "DeadLetterArrived", "critical", "page-everybody"),
    ("a loss that was lowered to a warning does not page", "MessageDropped", "warning", "slack"),
    ("a warning goes to the team", "PoisonMessage", "warning", "slack"),
    ("an age goes to the team", "MessageTooOld", "warning", "slack"),
    ("info is only shown", "QueueMisconfigured", "info", "nobody"),
    ("a purge may be meant", "QueuePurged", "info", "nobody"),
    ("a stale queue only holds others back", "QueueStale", "info", "nobody"),
    ("a blind watcher pages whoever runs it", "JobDown", "critical", "pagerduty-watcher"),
    ("no batch pages whoever runs it", "NoRecentBatch", "critical", "pagerduty-watcher"),
    ("telemetry is the platform's", "TelemetryStale", "warning", "slack-watcher"),
    ("so is lag", "PipelineLagging", "warning", "slack-watcher"),
]


def _amtool(binaries: Binaries, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binaries.amtool, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file", [FILE, FOLDER.parent / "compose" / "alertmanager.yml"], ids=lambda f: f.parent.name)
def test_alertmanager_accepts_the_configuration(file: Path, prometheus_binaries: Binaries) -> None:
    """The check includes the templates."""
    done = _amtool(prometheus_binaries, "check-config", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("why", "name", "severity", "receiver"), ROUTES, ids=lambda v: str(v)[:30])
def test_an_alert_goes_to_its_receiver(why: str, name: str, severity: str, receiver: str, prometheus_binaries: Binaries) -> None:
    """amtool evaluates the routes."""
    labels = {"alertname": f"Queuewatch{name}", "severity": severity, "component": BY_NAME[name].component, **QUEUE}
    words = [f"{key}={value}" for key, value in labels.items()]
    done = _amtool(
        prometheus_binaries, "config", "routes", "test", f"--config.file={FILE}", f"--verify.receivers={receiver}", *words
    )
    assert done.returncode == 0, f"{why}: {done.stdout}{done.stderr}"


def test_the_routing_test_can_fail(prometheus_binaries: Binaries) -> None:
    """amtool reports a wrong receiver as an error."""
    done = _amtool(
        prometheus_binaries,
        *("config", "routes", "test", f"--config.file={FILE}", "--verify.receivers=slack", "severity=critical"),
    )
    assert done.returncode != 0


def test_every_alert_has_a_receiver_that_fits_its_severity(prometheus_binaries: Binaries) -> None:
    """Alerts that page in the catalogue go to a pager; others do not."""
    pagers = {r["name"] for r in CONFIG["receivers"] if "pagerduty_configs" in r}
    for entry in CATALOGUE:
        labels = {"alertname": entry.alert_name, "severity": entry.severity, "component": entry.component}
        words = [f"{key}={value}" for key, value in labels.items()]
        done = _amtool(prometheus_binaries, "config", "routes", "test", f"--config.file={FILE}", *words)
        assert (done.stdout.strip() in pagers) is entry.pages, entry.name


def test_the_configuration_reads_secrets_from_files() -> None:
    """The configuration contains no key, token or URL with a secret."""
    keys = {"routing_key", "service_key", "api_key", "api_url", "credentials", "password", "bearer_token"}

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    found = set(walk(CONFIG))
    assert not found & keys
    assert found >= {"routing_key_file", "api_key_file", "api_url_file", "credentials_file"}


def test_alert_names_in_the_configuration_exist() -> None:
    """Otherwise a renamed alert would leave a route or an inhibition that never matches."""
    known = {entry.alert_name for entry in CATALOGUE}
    text = FILE.read_text()
    named = {word for word in _words(text) if word.startswith("Queuewatch")} - {"Queuewatch"}
    assert named
    assert named <= known


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text).split())


@pytest.fixture(scope="module")
def alertmanager(prometheus_servers: None) -> Iterator[Server]:
    """An Alertmanager with the sample's routes and inhibitions, whose receivers notify nobody."""
    del prometheus_servers
    quiet = {key: value for key, value in CONFIG.items() if key in ("route", "inhibit_rules")}
    with start_alertmanager({**quiet, "receivers": [{"name": r["name"]} for r in CONFIG["receivers"]]}) as server:
        yield server


def _alert(name: str, labels: dict[str, str]) -> dict[str, str]:
    entry = BY_NAME[name]
    kept = {key: value for key, value in labels.items() if key in entry.alert.identity or key in ("rulesgroup", "unique")}
    return {"alertname": entry.alert_name, "severity": entry.severity, "component": entry.component, **kept}


INHIBITED = [
    ("ages of a queue nobody reports on", "QueueStale", QUEUE, "MessageTooOld", QUEUE, True),
    ("ages of another queue are true", "QueueStale", QUEUE, "MessageTooOld", OTHER, False),
    ("a dead letter arrived all the same", "QueueStale", QUEUE, "DeadLetterArrived", QUEUE, False),
    ("the groups of a stalled queue", "QueueStalled", QUEUE, "GroupStuck", QUEUE, True),
    ("its lost concurrency", "QueueStalled", QUEUE, "ConcurrencyCollapsed", QUEUE, True),
    ("its age", "QueueStalled", QUEUE, "MessageTooOld", QUEUE, True),
    ("a stuck group of another queue", "QueueStalled", QUEUE, "GroupStuck", OTHER, False),
    ("its poison message is a cause, not a consequence", "QueueStalled", QUEUE, "PoisonMessage", QUEUE, False),
    ("concurrency behind a full front", "LookAheadSaturated", QUEUE, "ConcurrencyCollapsed", QUEUE, True),
    ("everything on queues while nothing is judged", "NoRecentBatch", QUEUE, "QueueStalled", OTHER, True),
    ("but not another job's", "NoRecentBatch", QUEUE, "QueueStalled", OTHER | {"job": "other"}, False),
    ("the raw time stamp of a silent collector", "TelemetryStale", QUEUE, "CollectorSilent", QUEUE, True),
    ("a little missing where most is", "CoverageLow", QUEUE, "TelemetryPartial", QUEUE, True),
    ("a stuck group does not hide a stalled queue", "GroupStuck", QUEUE, "QueueStalled", QUEUE, False),
]


@pytest.mark.parametrize(("why", "source", "theirs", "target", "ours", "held"), INHIBITED, ids=lambda v: str(v)[:40])
def test_inhibitions_apply_as_listed(
    why: str,
    source: str,
    theirs: dict[str, str],
    target: str,
    ours: dict[str, str],
    held: bool,
    alertmanager: Server,
) -> None:
    """A running Alertmanager is queried, with the labels that the alerts really have."""
    # Each case has its own jobs, so that cases do not inhibit each other.
    case = f"{INHIBITED.index((why, source, theirs, target, ours, held))}"
    posted = [_alert(source, theirs), _alert(target, ours)]
    for labels in posted:
        labels["job"] = f"{labels['job']}-{case}"
    ends = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)).isoformat()
    body = [{"labels": labels, "annotations": {}, "endsAt": ends} for labels in posted]
    answer = httpx.post(f"{alertmanager.url}/api/v2/alerts", json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    state = _state(alertmanager, posted[1])
    assert (state == "suppressed") is held, f"{why}: {state}"


def _state(server: Server, labels: dict[str, str]) -> str:
    wanted = [f"{key}={json.dumps(value)}" for key, value in labels.items()]

    def processed() -> str | None:
        found = httpx.get(f"{server.url}/api/v2/alerts", params=[("filter", w) for w in wanted], timeout=10).json()
        states = [alert["status"]["state"] for alert in found]
        return states[0] if len(states) == 1 and states != ["unprocessed"] else None

    return until(processed, "Alertmanager has processed the alert") or ""


def _notification(status: str, severity: str, *descriptions: str) -> dict[str, Any]:
    labels = {"alertname": "QueuewatchPoisonMessage", "severity": severity, **QUEUE}
    alerts = [
        {
            "status": status,
            "labels": labels,
            "annotations": {"description": text, "dashboard_url": "http://grafana/d/x"},
            "startsAt": "2025-11-21T12:00:00Z",
            "endsAt": "2025-11-21T13:00:00Z",
            "generatorURL": "",
            "fingerprint": "0",
        }
        for text in descriptions
    ]
    return {
        "receiver": "slack",
        "status": status,
        "alerts": alerts,
        "groupLabels": {key: labels[key] for key in ("alertname", "system", "scope_id", "queue")},
        "commonLabels": labels,
        "commonAnnotations": {"summary": "A message is never finished.", "runbook_url": "http://runbook/#x"},
        "externalURL": "",
    }


@pytest.mark.parametrize(
    ("template", "status", "texts", "said"),
    [
        ("title", "firing", ("one",), "[critical] orders: A message is never finished."),
        ("title", "resolved", ("one",), "[resolved] orders: A message is never finished."),
        ("text", "firing", ("one", "two"), "one\ntwo\n"),
        ("text", "resolved", ("one",), "Resolved: one\n"),
        ("runbook", "firing", ("one",), "http://runbook/#x"),
        ("dashboard", "firing", ("one",), "http://grafana/d/x"),
    ],
)
def test_templates_render_the_expected_text(
    template: str, status: str, texts: tuple[str, ...], said: str, tmp_path: Path, prometheus_binaries: Binaries
) -> None:
    """amtool renders the templates."""
    notification = _notification(status, "critical", *texts)
    assert _rendered(template, notification, tmp_path, prometheus_binaries) == said.rstrip("\n")


@pytest.mark.parametrize(
    ("label", "said"),
    [({"collectors": "1"}, "two"), ({"lost": "1"}, "two"), ({}, "Resolved: one\ntwo")],
    ids=["collectors", "lost", "none"],
)
def test_the_number_before_is_not_called_resolved(
    label: dict[str, str], said: str, tmp_path: Path, prometheus_binaries: Binaries
) -> None:
    """Of two silent collectors, the first has not recovered: only its alert made way for that with the number two."""
    notification = _notification("firing", "warning", "one", "two")
    before = notification["alerts"][0]
    before["status"], before["labels"] = "resolved", before["labels"] | label
    assert _rendered("text", notification, tmp_path, prometheus_binaries) == said


def _rendered(template: str, notification: dict[str, Any], folder: Path, binaries: Binaries) -> str:
    """Return what amtool renders, without the line end."""
    data = folder / "data.json"
    data.write_text(json.dumps(notification))
    done = _amtool(
        binaries,
        *("template", "render", f"--template.glob={FOLDER}/templates/*.tmpl"),
        *(f'--template.text={{{{ template "queuewatch.{template}" . }}}}', f"--template.data={data}"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")
