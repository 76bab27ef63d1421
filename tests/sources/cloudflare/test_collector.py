"""The collector reports only what the API says of each queue; a failing queue or response does not affect the others."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.collector import IDLE_S, CloudflareCollector
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.collect import run_collector
from sources.events import Event, encode_ndjson
from sources.wire import decode_records
from tests.sources.cloudflare.api_stub import ACCOUNT, TOKEN, Stub, StubMessage, answering, serving

SENT_MS = 1_750_000_000_000
WORKER = {
    "type": "worker",
    "script_name": "shop",
    "dead_letter_queue": "orders-dlq",
    "settings": {"batch_size": 10, "max_retries": 3, "max_wait_time_ms": 5000, "retry_delay": 0},
}


@pytest.fixture
def stub() -> Iterator[Stub]:
    """An account without queues."""
    with serving() as stub:
        yield stub


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the stub's token where the collector reads it."""
    monkeypatch.setenv("QUEUEWATCH_CLOUDFLARE_TOKEN", TOKEN)


class Run:
    """A collector whose clock the test moves from one due action to the next."""

    def __init__(self, collector: CloudflareCollector, api: CloudflareApi, clock: Clock) -> None:
        self.events: list[Event] = []
        self._collector = collector
        self._api = api
        self._clock = clock

    def of(self, kind: str, queue: str | None = None) -> list[Event]:
        """Return the events of one type."""
        return [e for e in self.events if e["type"] == kind and (queue is None or e.get("queue") == queue)]

    def attributes(self, queue: str) -> dict[str, Any]:
        """Return everything reported about a queue; later values replace earlier ones."""
        return {name: v for event in self.of("queue_state", queue) for name, v in event["attributes"].items()}

    def until(self, ready: Callable[[], Any], within_s: float = 60.0) -> Any:
        """Advance until `ready()` holds."""
        end_s = self._clock.now_s + within_s
        while self._clock.now_s < end_s:
            if answer := ready():
                return answer
            self._step()
        raise AssertionError(f"not within {within_s} s; {len(self.events)} events, the last: {self.events[-3:]}")

    def go_on(self, seconds: float) -> None:
        """Advance the clock."""
        end_s = self._clock.now_s + seconds
        while self._clock.now_s < end_s:
            self._step()

    def _step(self) -> None:
        wait_s = min(self._collector.step(self._api, self.events.extend), IDLE_S)
        if wait_s > 0:
            self._clock.now_s += max(wait_s, 0.001)


class Clock:
    """A clock that the test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def quick(stub: Stub, **changes: Any) -> CloudflareCollectorConfig:
    """Return a configuration with short intervals."""
    short = {
        "account_id": ACCOUNT,
        "api_url": stub.url,
        "poll_interval_s": 0.1,
        "discovery_interval_s": 0.3,
        "heartbeat_interval_s": 0.1,
        "requests_per_5min": 300_000,
        "timeout_s": 2.0,
        "sample": {"interval_s": 0.1},
    }
    return CloudflareCollectorConfig.model_validate(short | changes)


@contextmanager
def running(stub: Stub, **changes: Any) -> Iterator[Run]:
    """Run a collector with short intervals and its own clock in the test's thread."""
    clock = Clock()
    collector = CloudflareCollector(quick(stub, **changes), clock)
    with collector.open_api() as api:
        yield Run(collector, api, clock)


def test_a_queue_is_reported_with_backlog_and_settings(stub: Stub) -> None:
    """The event has the system, the scope and the attribute names that the judge reads."""
    stub.add("orders", consumer=WORKER, settings={"message_retention_period": 345_600, "delivery_delay": 0})
    stub.queues[0].messages = [StubMessage("m0", SENT_MS, 1), StubMessage("m1", SENT_MS + 5, 3)]
    with running(stub) as run:
        run.until(lambda: "sample_size" in run.attributes("orders"))
        event = run.of("queue_state", "orders")[0]
        attributes = run.attributes("orders")
    assert (event["v"], event["system"], event["scope"]) == (1, "cloudflare_queues", ACCOUNT)
    assert attributes == {
        "kind": "standard",
        "retention_s": 345_600,
        "delivery_delay_s": 0,
        "has_consumer": True,
        "consumer_type": "worker",
        "consumer_script": "shop",
        "max_batch_size": 10,
        "max_batch_timeout_s": 5,
        "max_retries": 3,
        "max_receive_count": 4,
        "retry_delay_s": 0,
        "dead_letter_queue": "orders-dlq",
        "has_dead_letter_queue": True,
        "findings": [],
        "visible": 2,
        "in_flight": None,
        "backlog_bytes": 200,
        "oldest_sent_at": SENT_MS,
        "sample_size": 2,
        "sample_max_attempts": 3,
        "sample_suspects": [{"message_id": "m1", "attempts": 3, "sent_at": SENT_MS + 5}],
    }


def test_an_empty_queue_has_nothing_in_flight_either(stub: Stub) -> None:
    """A backlog of zero counts unacknowledged messages too; in a larger one, the in-flight share is unknown."""
    queue = stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.attributes("orders").get("in_flight") == 0)
        queue.backlog = 5
        run.until(lambda: run.attributes("orders").get("visible") == 5)
        assert run.attributes("orders")["in_flight"] is None


def test_every_event_is_valid_on_the_wire(stub: Stub) -> None:
    """The service's decoder accepts every event."""
    stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 2)])
    stub.add("orders-dlq", messages=[StubMessage("d0", SENT_MS, 1)])
    with running(stub) as run:
        run.until(lambda: run.of("sent") and run.of("heartbeat") and "sample_size" in run.attributes("orders"))
        events = list(run.events)
    decoded = decode_records([encode_ndjson(events)])
    assert list(decoded.invalid) == []
    assert decoded.events.num_rows == len(events)


def test_the_collector_only_reads(stub: Stub) -> None:
    """It never pulls, acknowledges, purges or changes anything, even where a queue has a pull consumer."""
    pull = {"type": "http_pull", "dead_letter_queue": "", "settings": {"max_retries": 3, "visibility_timeout_ms": 1000}}
    stub.add("jobs", consumer=pull, messages=[StubMessage("m0", SENT_MS, 2)])
    with running(stub) as run:
        run.until(lambda: run.attributes("jobs").get("sample_size"))
    for request in stub.requests:
        ending = request.path.rpartition("/")[2]
        assert (request.method, ending) in {("GET", "queues"), ("GET", "metrics"), ("GET", "consumers"), ("POST", "peek")}
    assert run.attributes("jobs")["visibility_timeout_s"] == 1.0
    assert stub.queues[0].messages[0].lease is None


def test_all_pages_are_read(stub: Stub) -> None:
    """250 queues arrive on three pages."""
    for i in range(250):
        stub.add(f"q{i}", consumer=WORKER)
    with running(stub, discovery_interval_s=60, poll_interval_s=2) as run:
        run.until(lambda: len({e["queue"] for e in run.of("queue_state")}) == 250)
    assert [r.query["page"] for r in stub.calls("/queues")] == [["1"], ["2"], ["3"]]


def test_endless_pages_are_abandoned(stub: Stub) -> None:
    """An API that ignores the page parameter must not be asked forever."""
    entries = [{"queue_id": f"{i:032x}", "queue_name": f"q{i}"} for i in range(100)]
    page = json.dumps({"success": True, "errors": [], "messages": [], "result": entries})
    stub.standing["/queues"] = answering(200, page)
    with running(stub, discovery_interval_s=60) as run:
        run.until(lambda: len(stub.calls("/metrics")) > 0)
    assert len(stub.calls("/queues")) == 2


def test_only_matching_queues_are_watched(stub: Stub) -> None:
    """`queues` includes and `exclude` excludes by pattern."""
    for name in ("orders-eu", "orders-test", "mail"):
        stub.add(name, consumer=WORKER)
    with running(stub, queues=["orders-*"], exclude=["*-test"]) as run:
        run.until(lambda: len(run.of("queue_state")) >= 3)
    assert {e["queue"] for e in run.of("queue_state")} == {"orders-eu"}


def test_a_failing_queue_does_not_affect_the_others(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """It is polled less and less often, logged once, and reported again as soon as it answers."""
    bad, good = stub.add("bad", consumer=WORKER, backlog=1), stub.add("good", consumer=WORKER, backlog=2)
    stub.standing[f"{bad.id}/metrics"] = answering(500, "<html>no</html>")
    with caplog.at_level(logging.WARNING), running(stub, poll_interval_s=0.05) as run:
        run.until(lambda: len(stub.calls(f"{good.id}/metrics")) >= 20)
        assert run.of("queue_state", "bad") == []
        assert len(stub.calls(f"{bad.id}/metrics")) < len(stub.calls(f"{good.id}/metrics")) / 2
        del stub.standing[f"{bad.id}/metrics"]
        run.until(lambda: run.of("queue_state", "bad"))
    reported = [record.getMessage() for record in caplog.records if "500" in record.getMessage()]
    assert len(reported) == 1, reported
    assert reported[0].startswith("Cloudflare: queue bad: metrics")


def test_a_queue_that_vanished_is_no_longer_reported(stub: Stub) -> None:
    """A 404 shows it at once, before the next listing."""
    stub.add("orders", consumer=WORKER)
    gone = stub.add("gone", consumer=WORKER)
    with running(stub, discovery_interval_s=60) as run:
        run.until(lambda: run.of("queue_state", "gone"))
        stub.queues.remove(gone)
        run.until(lambda: len(run.of("queue_state", "orders")) >= 12)
        asked = len(stub.calls(f"{gone.id}/metrics"))
        reported = len(run.of("queue_state", "gone"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= 20)
        assert len(stub.calls(f"{gone.id}/metrics")) == asked
        assert len(run.of("queue_state", "gone")) == reported


def test_a_new_queue_and_new_settings_are_found(stub: Stub) -> None:
    """They are found at the next listing."""
    queue = stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.attributes("orders").get("max_retries") == 3)
        queue.consumer = {**WORKER, "settings": {"max_retries": 9}}
        stub.add("mail")
        run.until(lambda: run.attributes("orders").get("max_retries") == 9 and run.of("queue_state", "mail"))


def test_known_queues_are_polled_when_the_list_fails(stub: Stub) -> None:
    """A failing listing does not stop the polling of queues that are already known."""
    stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("queue_state", "orders"))
        stub.standing["/queues"] = answering(502, "<html>")
        reported = len(run.of("queue_state", "orders"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= reported + 10)


def test_consumers_missing_from_the_list_are_requested(stub: Stub) -> None:
    """It costs one more request, and only for that queue."""
    queue = stub.add("orders", consumer=WORKER)
    entry = {**queue.as_listed(), "consumers": [], "consumers_total_count": 1}
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "messages": [], "result": [entry]}))
    with running(stub, discovery_interval_s=60) as run:
        run.until(lambda: run.attributes("orders").get("max_retries") == 3)
    assert len(stub.calls("/consumers")) == 1


def test_heartbeats_stop_when_the_api_is_silent(stub: Stub) -> None:
    """A collector that has no answer for a minute must look like one that fell silent."""
    stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("heartbeat"))
        assert run.of("heartbeat")[0]["consumer"] == f"cloudflare:{ACCOUNT}"
        for end in ("/metrics", "/queues", "/peek"):
            stub.standing[end] = answering(503, "")
        before = len(run.of("heartbeat"))
        run.go_on(61)
        reported = len(run.of("heartbeat"))
        assert reported > before
        run.go_on(30)
        assert len(run.of("heartbeat")) == reported
        stub.standing.clear()
        run.until(lambda: len(run.of("heartbeat")) > reported, within_s=600)


def test_no_heartbeat_before_the_api_answered(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong token shows at once, and the log says what to do."""
    monkeypatch.setenv("QUEUEWATCH_CLOUDFLARE_TOKEN", "wrong")
    with caplog.at_level(logging.WARNING), running(stub) as run:
        run.until(lambda: stub.requests)
        run.go_on(20)
    assert run.events == []
    assert "Authentication error" in caplog.text
    assert len(stub.requests) == 1, "a token that is refused is not tried again at once"


def test_too_many_requests_stop_all_of_them(stub: Stub) -> None:
    """All requests stop for as long as the API asks, then resume."""
    stub.add("orders", consumer=WORKER)
    stub.add("mail", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("queue_state", "mail") and run.of("queue_state", "orders"))
        stub.faults["/metrics"].append(answering(429, "{}", retry_after="1"))
        run.until(lambda: not stub.faults["/metrics"])
        asked = len(stub.requests)
        run.go_on(0.9)
        assert len(stub.requests) == asked
        reported = len(run.of("queue_state", "orders"))
        run.until(lambda: len(run.of("queue_state", "orders")) > reported)


def test_requests_stay_within_the_budget(stub: Stub) -> None:
    """With many queues and a small budget, polls are less frequent; the number of requests stays the same."""
    for i in range(40):
        stub.add(f"q{i}", consumer=WORKER)
    with running(stub, requests_per_5min=300) as run:
        run.until(lambda: len(stub.requests) >= 30)
        before = len(stub.requests)
        run.go_on(20)
        assert 19 <= len(stub.requests) - before <= 21, "one request a second"


def test_a_sampled_message_is_tracked_only_where_its_end_will_be_known(stub: Stub) -> None:
    """Only `instrumented` queues and dead-letter queues without a consumer get a `sent` event per message, once and dated."""
    for name, consumer in (("orders", WORKER), ("mail", WORKER), ("orders-dlq", None)):
        stub.add(name, consumer=consumer, messages=[StubMessage(f"{name}-0", SENT_MS, 2)])
    with running(stub, sample={"interval_s": 0.05, "instrumented": ["mail"]}) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 10 and run.of("sent", "mail") and run.of("sent", "orders-dlq"))
    assert sorted(e["message_id"] for e in run.of("sent")) == ["mail-0", "orders-dlq-0"]
    sent = run.of("sent", "mail")[0]
    assert (sent["sent_at"], sent["receive_count"]) == (SENT_MS, 2)
    assert sent["at"] > SENT_MS, "the time it was seen, or a long wait would make the event late"
    assert run.of("received") == []


def test_a_sample_of_a_queue_that_emptied_is_withdrawn(stub: Stub) -> None:
    """Suspects that are gone must not stay on the page."""
    queue = stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 4)])
    with running(stub) as run:
        run.until(lambda: run.attributes("orders").get("sample_suspects"))
        queue.messages.clear()
        run.until(lambda: run.attributes("orders").get("sample_size") == 0)
        assert run.attributes("orders")["sample_suspects"] == []
        looks = len(stub.calls("/peek"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= 20)
        assert len(stub.calls("/peek")) == looks, "an empty queue is not looked at"


def test_a_token_that_may_not_see_messages_still_sees_queues(stub: Stub) -> None:
    """A refused sample does not delay the queue's other requests."""
    stub.add("orders", consumer=WORKER, backlog=3)
    for end in ("/peek", "/preview"):
        stub.standing[end] = answering(403, "{}")
    with running(stub) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 10)
        assert len(stub.calls("/peek")) < 6


def test_without_sampling_no_message_is_read(stub: Stub) -> None:
    """`size: 0` turns sampling off."""
    stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 4)])
    with running(stub, sample={"size": 0}) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 5)
    assert stub.calls("/peek") + stub.calls("/preview") == []


def test_what_a_wrangler_file_declares_fills_the_gaps(stub: Stub, tmp_path: Path) -> None:
    """Deployed settings take precedence; attributes that differ are listed."""
    file = tmp_path / "wrangler.toml"
    file.write_text(
        'name = "shop"\n'
        '[[queues.consumers]]\nqueue = "orders"\nmax_retries = 5\ndead_letter_queue = "orders-dlq"\nmax_batch_timeout = 5\n'
        '[[queues.consumers]]\nqueue = "unknown-to-the-api"\nmax_retries = 0\n'
    )
    stub.add("orders", consumer=WORKER)
    queue = stub.add("unknown-to-the-api")
    stub.standing[f"{queue.id}/consumers"] = answering(500, "")
    entries = [stub.queues[0].as_listed(), {**queue.as_listed(), "consumers": None, "consumers_total_count": None}]
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "messages": [], "result": entries}))
    with running(stub, wrangler_files=[str(file)]) as run:
        run.until(lambda: run.of("queue_state", "orders") and run.of("queue_state", "unknown-to-the-api"))
    orders, other = run.attributes("orders"), run.attributes("unknown-to-the-api")
    assert (orders["max_retries"], orders["wrangler_differs"]) == (3, ["max_receive_count", "max_retries"])
    assert (other["max_retries"], other["has_consumer"], other["dead_letter_queue"]) == (0, True, "")
    assert [f["rule"] for f in other["findings"]] == ["no_dead_letter_queue", "no_retries"]


def test_a_configured_backoff_is_judged_with_the_actual_retries(stub: Stub) -> None:
    """30 ** attempts passes 24 hours at attempt 4, which three retries never reach."""
    stub.add("short", consumer=WORKER)
    stub.add("long", consumer={**WORKER, "settings": {"max_retries": 10}})
    with running(stub, backoff=[{"queues": ["*"], "first_s": 30, "factor": 30}]) as run:
        run.until(lambda: run.of("queue_state", "short") and run.of("queue_state", "long"))
    assert "backoff_cap_exceeded_at_attempt" not in run.attributes("short")
    assert run.attributes("long")["backoff_cap_exceeded_at_attempt"] == 4


def wait_until(ready: Callable[[], object]) -> None:
    """Wait in real time, for collectors that run in threads of their own."""
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    wait_until(lambda: telemetry.messages == [] and any(e["type"] == "queue_state" for e in events))
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    deleted = [e["message_id"] for e in events if e["type"] == "deleted"]
    assert sorted(deleted) == sorted(f"m{i}" for i in range(250))
    assert not [e for e in events if e["type"] == "sent" and e["queue"] == "telemetry"]


def test_the_runner_writes_events_to_a_spool(stub: Stub, tmp_path: Path) -> None:
    """The runner gets the kind and plain values, as from the command line."""
    stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 2)])
    stop = threading.Event()
    section = {"account_id": ACCOUNT, "api_url": stub.url, "poll_interval_s": 0.1}
    delivered: list[int] = []
    runner = threading.Thread(target=lambda: delivered.append(run_collector("cloudflare", section, f"spool:{tmp_path}", stop)))
    runner.start()
    wait_until(lambda: stub.calls("/peek"))
    stop.set()
    runner.join(10)
    decoded = decode_records([file.read_bytes() for file in tmp_path.glob("*.ndjson")])
    assert list(decoded.invalid) == []
    assert decoded.events.num_rows == delivered[0]
    assert {"heartbeat", "queue_state"} <= set(decoded.events["type"].to_pylist())
