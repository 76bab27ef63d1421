"""The collector in threads of its own: beside the drain, and under the runner."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from sources.cloudflare.collector import CloudflareCollector
from sources.collect import run_collector
from sources.events import Event
from sources.wire import decode_records
from tests.sources.cloudflare.api_stub import ACCOUNT, Stub, StubMessage
from tests.sources.cloudflare.driven import SENT_MS, WORKER, quick
from tests.waiting import until


def test_telemetry_in_a_queue_is_drained_too(stub: Stub) -> None:
    """Workers' events are emitted unchanged, and their queue is empty afterwards."""
    telemetry = stub.add("telemetry", consumer={"type": "http_pull", "dead_letter_queue": "", "settings": {}})
    stub.add("orders", consumer=WORKER)
    reported = {"v": 1, "type": "deleted", "at": SENT_MS, "system": "cloudflare_queues", "queue": "orders", "message_id": "m"}
    for i in range(250):
        telemetry.send(json.dumps([reported | {"message_id": f"m{i}"}]), "text")
    events: list[Event] = []
    stop = threading.Event()
    collector = CloudflareCollector(quick(stub, drain={"queue": "telemetry", "idle_s": 0.05}))
    thread = threading.Thread(target=collector.run, args=(events.extend, stop))
    thread.start()
    until(
        lambda: telemetry.messages == [] and any(e["type"] == "queue_state" for e in events),
        "the telemetry queue is drained, and the state of a queue reported",
    )
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    deleted = [e["message_id"] for e in events if e["type"] == "deleted"]
    assert sorted(deleted) == sorted(f"m{i}" for i in range(250))
    assert not [e for e in events if e["type"] == "sent" and e["queue"] == "telemetry"]


def test_a_failed_collector_leaves_no_thread(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner starts another one, beside which its drain would work with a closed client for ever."""

    def failing(*_: object) -> float:
        raise KeyError("an answer without result")

    monkeypatch.setattr(CloudflareCollector, "step", failing)
    before = set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(KeyError):
            CloudflareCollector(quick(stub, drain={"queue": "telemetry"})).run(lambda _: None, threading.Event())
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


def test_the_runner_writes_events_to_a_spool(stub: Stub, tmp_path: Path) -> None:
    """The runner gets the kind and plain values, as from the command line."""
    stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 2)])
    stop = threading.Event()
    section = {"account_id": ACCOUNT, "api_url": stub.url, "poll_interval_s": 0.1}
    delivered: list[int] = []
    runner = threading.Thread(target=lambda: delivered.append(run_collector("cloudflare", section, f"spool:{tmp_path}", stop)))
    runner.start()
    until(lambda: stub.calls("/peek"), "a queue was peeked into")
    stop.set()
    runner.join(10)
    decoded = decode_records([file.read_bytes() for file in tmp_path.glob("*.ndjson")])
    assert list(decoded.invalid) == []
    assert decoded.events.num_rows == delivered[0]
    assert {"heartbeat", "queue_state"} <= set(decoded.events["type"].to_pylist())
