"""With no threshold that is accepted does a rule fail, nor with one that the core is given without a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Accepted, Thresholds, accepted
from tests.alerts.findings import flow, messages, ordered
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

RECORDINGS: dict[str, tuple[Callable[[], list[dict[str, Any]]], int]] = {
    "messages": (messages, 1_000),
    "ordered": (ordered, 420),
    "flow": (flow, 1_900),
}
EXTREMES: dict[str, Callable[[Accepted], float]] = {"least": lambda a: a.least, "most": lambda a: a.most}


def judged_with(thresholds: Thresholds, events: list[dict[str, Any]], until_s: int, every_s: int = 30) -> Judged:
    settings = Settings(now_is_event_time=True, defaults=thresholds)
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), every_s, until_s), settings)


@pytest.mark.simulation
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_smallest_and_largest_thresholds_can_be_judged_with(recording: str, extreme: str) -> None:
    """Nothing overflows or divides by zero, and the evidence has finite numbers."""
    chosen = {f.name: EXTREMES[extreme](accepted(f.name)) for f in fields(Thresholds)}
    thresholds = Thresholds(**{name: type(getattr(Thresholds(), name))(value) for name, value in chosen.items()})
    events, until_s = RECORDINGS[recording]
    found = judged_with(thresholds, events(), until_s)
    numbers = [v for change in found.changes for v in change.finding.evidence.values() if isinstance(v, float)]
    assert all(map(math.isfinite, numbers))


@pytest.mark.parametrize("zero", ["fifo_call_limit", "fifo_messages_per_call"])
def test_a_fifo_queue_is_near_no_limit_of_zero_calls(zero: str) -> None:
    """The configuration refuses it; the share of nothing is not known."""
    attributes = {"kind": "fifo", "throughput_limit": "perQueue"}
    events = [ev("queue_state", 0, "q.fifo", attributes=attributes)]
    events += [ev("sent", i, "q.fifo", message_id=f"m{i}", group="g", sequence=str(i)) for i in range(400)]
    found = judged_with(Thresholds(**{zero: 0}), events, 400, 20)
    assert not [f for f in found.firing("QueueMisconfigured") if f.key.part == "fifo_throughput"]


def test_a_window_that_nothing_outlived_lately_is_long_enough() -> None:
    """Without a minimum, as the core can be given, a share of no deliveries is no reason to fire."""
    about = {"message_id": "m", "consumer": "w"}
    events = [ev("sent", 0, message_id="m"), ev("received", 1, receive_count=1, **about), ev("deleted", 45, **about)]
    thresholds = Thresholds(short_window_ratio=0, short_window_min_deliveries=0)
    found = judged_with(thresholds, [ev("queue_state", 0, attributes={"visibility_timeout_s": 30}), *events], 1_500)
    assert [status for _, signal, status, _ in found.changes_seen() if signal == "WindowTooShort"] == ["firing", "resolved"]
