"""A FIFO queue close to the calls per second that its mode allows is reported."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import Finding
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

PER_QUEUE = {"kind": "fifo", "throughput_limit": "perQueue", "deduplication_scope": "queue"}
HIGH = {"kind": "fifo", "throughput_limit": "perMessageGroupId", "deduplication_scope": "messageGroup"}


def throughput(
    rate_per_s: float, attributes: dict[str, Any], for_s: int = 400, *, per_call: int = 1, limit_s: float = 300
) -> list[Finding]:
    """Return the finding on a queue with this many messages per second, whose limit is one call per second."""
    n = round(for_s * rate_per_s)
    events = [ev("queue_state", 0, "q.fifo", attributes=attributes)]
    for i in range(n):
        about: dict[str, Any] = {"message_id": f"m{i}", "group": f"g{i % 7}"}
        events.append(ev("sent", i / rate_per_s, "q.fifo", sequence=str(i + 1), **about))
        events.append(ev("deleted", i / rate_per_s + 0.01, "q.fifo", **about))
    limits = Thresholds(fifo_call_limit=1, fifo_messages_per_call=per_call, fifo_limit_s=limit_s)
    found = judged(in_steps(events, 20, for_s), Settings(now_is_event_time=True, defaults=limits))
    return [f for f in found.firing("QueueMisconfigured") if f.key.part == "fifo_throughput"]


@pytest.mark.parametrize(
    ("rate_per_s", "attributes", "for_s", "per_call", "fires"),
    [
        (0.95, PER_QUEUE, 400, 1, True),
        (0.8, PER_QUEUE, 400, 1, False),
        (0.95, PER_QUEUE, 240, 1, False),
        (0.95, HIGH, 400, 1, False),
        (0.95, HIGH | {"deduplication_scope": "queue"}, 400, 1, True),
        (0.95, {"kind": "fifo"}, 400, 1, False),
        (0.95, PER_QUEUE, 400, 2, False),
        (1.9, PER_QUEUE, 400, 2, True),
    ],
    ids=[
        "95%",
        "80%",
        "four minutes",
        "high throughput",
        "half switched on",
        "not reported",
        "two a call",
        "95 % at two a call",
    ],
)
def test_ninety_per_cent_of_the_limit_for_five_minutes(
    rate_per_s: float, attributes: dict[str, Any], for_s: int, per_call: int, fires: bool
) -> None:
    """The attributes give the mode; calls are estimated from messages."""
    assert bool(throughput(rate_per_s, attributes, for_s, per_call=per_call)) is fires


@pytest.mark.simulation
@pytest.mark.parametrize(("limit_s", "fires"), [(1_200, True), (1_300, False)])
def test_its_time_may_be_longer_than_the_samples_that_are_ten_seconds_apart(limit_s: float, fires: bool) -> None:
    """The queue is twenty minutes and a half old."""
    assert bool(throughput(0.95, PER_QUEUE, 1_230, limit_s=limit_s)) is fires


@pytest.mark.simulation
def test_it_is_a_warning_where_full_batches_would_be_too_many() -> None:
    """Ten messages per call is the maximum."""
    assert [f.severity for f in throughput(1.0, PER_QUEUE)] == ["info"]
    (found,) = throughput(9.6, PER_QUEUE, 320)
    assert found.severity == "warning"
    assert found.evidence["messages_per_s"] >= 9
