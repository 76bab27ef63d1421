"""Workers in workerd → the wrapper → HTTP ingest → the Spark job → `/metrics` and signals that name the message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.services.node import Node
from tests.services.process import ServiceUnavailable, java, running
from tests.sources.cloudflare.worker_script import SCRIPTS
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOKEN = "ingest-token"
SHOP_S = 11
"""Time for seven deliveries a second apart, and for the report of the last one."""


@dataclass(frozen=True)
class Outcome:
    """What the service showed after the shop closed."""

    changes: list[dict[str, Any]]
    """The signal log."""
    metrics: str
    messages: list[dict[str, Any]]
    """The suspect messages of `later`."""

    def fired(self, signal: str, queue: str) -> list[dict[str, Any]]:
        """Return each time that a signal began to fire for a queue."""
        wanted = ("firing", signal, queue)
        return [c for c in self.changes if (c["status"], c["signal"], c["queue"]) == wanted]

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of one series."""
        for line in self.metrics.splitlines():
            found = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
            if found and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[1])).items():
                return float(found[2])
        return None


@pytest.fixture(scope="module")
def outcome(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One run of all parts; takes about 40 s, most of it for Spark's start."""
    try:
        java()
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("cloudflare")
    signal_log = folder / "signals.ndjson"
    config = folder / "queuewatch.yaml"
    config.write_text(
        json.dumps(
            {
                "source": {"spool": {"folder": str(folder / "spool")}},
                "spark": {"checkpoint_dir": str(folder / "checkpoint"), "master": "local[2]"},
                "http": {"port": 0, "ingest": {"enabled": True}},
                "signal_log": {"path": str(signal_log)},
                "log": {"format": "json"},
            }
        )
    )
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--config", str(config)]
    env = os.environ | {"QUEUEWATCH_HTTP__INGEST__TOKEN": TOKEN}
    with running(command, folder / "service.log", _url, env=env) as url, httpx.Client(base_url=url, timeout=10) as client:
        _until_ready(client)
        shop = [node.executable, str(SCRIPTS / "shop_run.mjs"), url, TOKEN, str(SHOP_S)]
        done = subprocess.run(shop, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        _until_judged(client, signal_log)
        yield Outcome(
            [json.loads(line) for line in signal_log.read_text().splitlines()],
            client.get("/metrics").text,
            client.get("/api/v1/queues/later/messages").json()["messages"],
        )


def _url(log: str) -> str | None:
    found = re.search(r'"url": ?"(http://[^"]+)"', log)
    return found[1] if found else None


def _until_ready(client: httpx.Client, within_s: float = 120) -> None:
    """Wait until an event has passed through Spark; otherwise the poison message could come and go before the first batch."""
    heartbeat = {"v": 1, "type": "heartbeat", "at": time.time_ns() // 1_000_000, "consumer": "test"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert client.post("/api/v1/events", json=heartbeat, headers=headers).is_success
    until(
        lambda: client.get("/-/ready").is_success,
        "the service is ready",
        within_s,
        every_s=0.2,
        shows=lambda: client.get("/-/ready").text,
    )


def _until_judged(client: httpx.Client, signal_log: Path, within_s: float = 60) -> None:
    """Wait until the shop's last events have been judged: ten dropped orders."""

    def text() -> str:
        return signal_log.read_text() if signal_log.exists() else ""

    until(
        lambda: text().count('"MessageDropped"') >= 10 and '"DeadLetterArrived"' in text(),
        "the last events are judged",
        within_s,
        every_s=0.5,
        shows=lambda: f"{text()[-2000:]}\n{client.get('/metrics').text[:2000]}",
    )


def test_the_poison_message_is_named(outcome: Outcome) -> None:
    """The signal has the message's id and its receive count."""
    fired = outcome.fired("PoisonMessage", "mail")
    assert len({c["message_id"] for c in fired}) == 1
    assert fired[0]["system"] == "cloudflare_queues"
    assert fired[0]["evidence"]["receive_count"] >= 3


def test_its_dead_letter_is_the_same_message(outcome: Outcome) -> None:
    """The message is moved after the seventh delivery and keeps its id."""
    arrived = outcome.fired("DeadLetterArrived", "mail-dlq")
    assert [c["message_id"] for c in arrived] == [outcome.fired("PoisonMessage", "mail")[0]["message_id"]]
    assert outcome.metric("queuewatch_messages_dead_lettered_total", queue="mail") == 1
    assert outcome.metric("queuewatch_messages_deleted_total", queue="mail") == 4


def test_retries_that_run_out_without_a_dead_letter_queue_are_a_loss(outcome: Outcome) -> None:
    """Nine good orders are lost together with the bad one, and each is named."""
    dropped = outcome.fired("MessageDropped", "orders")
    assert len({c["message_id"] for c in dropped}) == 10
    assert "exception: TypeError; delivery 3 of 3" in dropped[0]["evidence"]["summary"]
    assert outcome.metric("queuewatch_messages_dropped_total", queue="orders") == 10


def test_redeliveries_by_failing_batches_are_counted(outcome: Outcome) -> None:
    """Of thirty deliveries, twenty are redeliveries."""
    evidence = outcome.fired("BatchRetryStorm", "orders")[-1]["evidence"]
    assert evidence["redeliveries_from_failed_batches"] >= 10
    assert outcome.metric("queuewatch_messages_received_total", queue="orders") == 30
    assert outcome.fired("BatchRetryStorm", "mail") == []


def test_a_consumer_without_a_dead_letter_queue_is_misconfigured(outcome: Outcome) -> None:
    """The Worker reports its own consumer options."""
    rules = {c["evidence"]["rule"] for c in outcome.fired("QueueMisconfigured", "orders")}
    assert "no_dead_letter_queue" in rules
    assert outcome.fired("QueueMisconfigured", "mail") == []


def test_delayed_messages_cause_no_signal(outcome: Outcome) -> None:
    """One message is retried with a delay and one sent with a delay: they are neither visible nor in flight."""
    state = {s: outcome.metric("queuewatch_queue_messages", queue="later", state=s) for s in ("visible", "in_flight", "delayed")}
    assert state == {"visible": 0, "in_flight": 0, "delayed": 2}
    assert outcome.metric("queuewatch_messages_sent_total", queue="later") == 2
    alarming = {c["signal"] for c in outcome.changes if c["queue"] == "later"}
    assert alarming == set()


def test_all_events_of_the_wrapper_were_accepted(outcome: Outcome) -> None:
    """The token was accepted, and every event was valid."""
    assert outcome.metric("queuewatch_events_total", result="invalid") == 0
    answers = dict(re.findall(r'queuewatch_ingest_requests_total\{code="(\d+)"\} (\d+)', outcome.metrics))
    assert answers
    assert set(answers) <= {"200", "202"}
