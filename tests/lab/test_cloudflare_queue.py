"""The simulated Cloudflare queue: batches, retries, and messages whose retries run out."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cloudflare import CloudflareQueue, CloudflareSettings
from lab.history import History
from lab.report import Report
from lab.simulation import Simulation


def queue(*, dead_letters: bool = True, **settings: Any) -> CloudflareQueue:
    """A queue whose consumer takes a second for each message."""
    sim, history = Simulation(1, 3600), History()
    reports: list[Report] = []
    target = CloudflareQueue(sim, CloudflareSettings("dlq"), history, reports) if dead_letters else None
    made = CloudflareSettings("q", dead_letter_queue="dlq" if dead_letters else None, **settings)
    return CloudflareQueue(sim, made, history, reports, lambda _: 1.0, target)


def reported(q: CloudflareQueue, *kinds: str) -> list[tuple[str, Any, int]]:
    """Return type, receive count and second of the events of these types."""
    begin = q.reports[0].event["at"] - 5000 if q.reports else 0
    events = [r.event for r in q.reports if r.event["type"] in kinds]
    return [(e["type"], e.get("receive_count"), (e["at"] - begin) // 1000) for e in events]


def test_a_batch_is_delivered_when_it_is_full_or_after_its_timeout() -> None:
    """With a batch size of two, two of three messages are delivered at once and the third after five seconds."""
    q = queue(max_batch_size=2)
    for _ in range(3):
        q.send()
    assert [d.at - q.sim.now for d in q.history.of("q").deliveries] == [0, 0]
    q.sim.run(4.9)
    assert len(q.history.of("q").deliveries) == 2
    q.sim.run(5)
    assert len(q.history.of("q").deliveries) == 3


def test_concurrent_batches_are_limited() -> None:
    """With five full batches and two invocations, the third batch begins when the first ends."""
    q = queue(max_batch_size=1, max_concurrency=2)
    for _ in range(5):
        q.send()
    q.sim.run(0.9)
    assert len(q.history.of("q").deliveries) == 2
    q.sim.run(1)
    assert len(q.history.of("q").deliveries) == 4


@pytest.mark.parametrize(("failure", "again"), [("throw", 2), ("retry", 1)])
def test_a_throw_fails_the_whole_batch_and_a_retry_only_one_message(failure: Any, again: int) -> None:
    """The batch has one good and one bad message."""
    q = queue(max_batch_size=2)
    q.failure = failure
    q.send()
    q.send(fails_on="*")
    q.sim.run(3)
    (batch,) = (r.event["attributes"] for r in q.reports if r.event["type"] == "batch")
    assert batch["size"] == 2
    assert (batch["acked"], batch["failed"] + batch["retried"]) == (2 - again, again)
    assert len(reported(q, "released")) == again


@pytest.mark.parametrize(("dead_letters", "end"), [(True, "dead_lettered"), (False, "dropped")])
def test_a_message_is_moved_or_dropped_when_its_retries_run_out(dead_letters: bool, end: str) -> None:
    """With max_retries 2 there are three deliveries; then the message is moved to the dead-letter queue or dropped."""
    q = queue(dead_letters=dead_letters, max_batch_size=1, max_retries=2)
    q.send(fails_on="*")
    q.sim.run(60)
    assert [d.receive_count for d in q.history.of("q").deliveries] == [1, 2, 3]
    assert [(kind, count) for kind, count, _ in reported(q, end)] == [(end, 3)]
    q.history.freeze()
    assert q.history.of("q").counts(q.sim.now).unsettled == 0
    if q.dead_letters is not None:
        assert q.history.of("dlq").counts(q.sim.now).visible == 1


def test_a_retry_delay_delays_the_message() -> None:
    """The message is delayed for 30 s after its first delivery; the next one waits for the batch timeout."""
    q = queue(max_batch_size=10, retry_delay_s=30, max_batch_timeout_s=5)
    begin = q.sim.now
    q.send(fails_on="*")
    q.sim.run(60)
    assert [(d.at - begin) / 1000 for d in q.history.of("q").deliveries] == [5, 41]
    q.history.freeze()
    assert q.history.of("q").counts(begin + 20_000).delayed == 1
