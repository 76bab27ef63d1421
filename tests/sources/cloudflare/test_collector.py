"""The collector reports only what the API says of each queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sources.events import encode_ndjson
from sources.wire import decode_records
from tests.sources.cloudflare.api_stub import ACCOUNT, Stub, StubMessage, answering
from tests.sources.cloudflare.driven import SENT_MS, WORKER, running


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
        "max_concurrency": None,
        "visibility_timeout_s": None,
        "dead_letter_queue": "orders-dlq",
        "has_dead_letter_queue": True,
        "wrangler_differs": None,
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


@pytest.mark.slow
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


def test_a_removed_setting_is_withdrawn(stub: Stub) -> None:
    """Each report says so, for a service that kept it from before the collector was restarted."""
    queue = stub.add("orders", consumer={**WORKER, "settings": {"max_retries": 3, "retry_delay": 60}})
    with running(stub) as run:
        run.until(lambda: run.attributes("orders").get("retry_delay_s") == 60)
        queue.consumer = WORKER | {"settings": {"max_retries": 3}}
        run.until(lambda: run.attributes("orders")["retry_delay_s"] is None)
        assert run.attributes("orders")["dead_letter_queue"] == "orders-dlq"
        queue.consumer = None
        run.until(lambda: run.attributes("orders")["dead_letter_queue"] is None)
        assert run.attributes("orders")["has_consumer"] is False
        assert run.attributes("orders")["max_receive_count"] is None


def test_a_back_off_that_no_longer_exceeds_the_cap_is_withdrawn_once(stub: Stub) -> None:
    """Not with every report: a Worker that sees its handler ask for more must not be contradicted each time."""
    queue = stub.add("orders", consumer={**WORKER, "settings": {"max_retries": 10}})
    with running(stub, backoff=[{"queues": ["*"], "first_s": 30, "factor": 30}]) as run:
        run.until(lambda: run.attributes("orders").get("backoff_cap_exceeded_at_attempt") == 4)
        queue.consumer = WORKER
        run.until(lambda: run.attributes("orders")["backoff_cap_exceeded_at_attempt"] is None)
        run.until(lambda: "backoff_cap_exceeded_at_attempt" not in run.of("queue_state", "orders")[-1]["attributes"])
        assert run.attributes("orders")["backoff_cap_exceeded_at_attempt"] is None


def test_consumers_missing_from_the_list_are_requested(stub: Stub) -> None:
    """It costs one more request, and only for that queue."""
    queue = stub.add("orders", consumer=WORKER)
    entry = {**queue.as_listed(), "consumers": [], "consumers_total_count": 1}
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "messages": [], "result": [entry]}))
    with running(stub, discovery_interval_s=60) as run:
        run.until(lambda: run.attributes("orders").get("max_retries") == 3)
    assert len(stub.calls("/consumers")) == 1


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
