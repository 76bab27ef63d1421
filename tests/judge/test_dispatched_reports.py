"""What the broker's strategies would say of a consumer follows its messages where they are newer than the collector's report."""

from __future__ import annotations

from typing import Any

from tests.core.driving import event
from tests.judge.driving import Judged, in_steps, judged


def mq(type_: str, at_ms: int, **fields: Any) -> dict[str, Any]:
    """An event of an ActiveMQ queue."""
    return event(type_, at_ms, **fields) | {"system": "activemq"}


def state(at_ms: int, dispatched: int, prefetch: int) -> dict[str, Any]:
    """A collector's report of the only consumer."""
    return mq(
        "consumer_state", at_ms, consumer="c", attributes={"prefetch": prefetch, "dispatched": dispatched, "connected": True}
    )


def sent(n: int, at_ms: int) -> dict[str, Any]:
    return mq("sent", at_ms, message_id=f"m{n}")


def received(n: int, at_ms: int) -> dict[str, Any]:
    return mq("received", at_ms, message_id=f"m{n}", consumer="c", receive_count=1)


def strategies(said: Judged) -> set[str]:
    """The strategies that ever called it slow."""
    firing = {f.key.part for s in said.snapshots for f in s.firing if f.key.signal == "SlowConsumer"}
    return {part for part in firing if part is not None}


def test_a_consumer_that_was_idle_when_it_was_reported_is_judged_by_what_it_received_since() -> None:
    """Its window of two is full from 1.5 s on, and it acknowledges nothing."""
    events = [state(0, 0, 2), *(sent(n, 500 + n) for n in range(20)), received(0, 1_000), received(1, 1_500)]
    assert {"prefetch", "ack"} <= strategies(judged(in_steps(events, 1, 90)))


def test_a_consumer_that_has_acknowledged_since_it_was_reported_is_idle() -> None:
    """It holds nothing, whatever the report says; more messages wait, which it was not given."""
    events = [sent(0, 500), received(0, 1_000), state(1_500, 1, 1), mq("deleted", 2_000, message_id="m0", consumer="c")]
    events += [sent(n, 3_000 + n) for n in range(1, 5)]
    assert strategies(judged(in_steps(events, 1, 90))).isdisjoint({"prefetch", "ack"})


def test_a_newer_report_counts() -> None:
    """It knows of messages that nobody reported."""
    events = [sent(0, 500), received(0, 1_000), mq("deleted", 2_000, message_id="m0", consumer="c")]
    events += [sent(n, 3_000 + n) for n in range(1, 5)]
    events += [state(n * 10_000, 1, 1) for n in range(1, 9)]
    assert "prefetch" in strategies(judged(in_steps(sorted(events, key=lambda e: e["at"]), 1, 90)))
