"""A consumer that fails while the others do not: it is blamed while it works, with the numbers of one period."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Wire = dict[str, Any]


def finished(at_s: float, name: str, consumer: str) -> list[Wire]:
    """Return a message that is worked on for half a second."""
    about: Wire = {"message_id": name}
    got = ev("received", at_s, receive_count=1, consumer=consumer, **about)
    return [ev("sent", at_s, **about), got, ev("deleted", at_s + 0.5, **about)]


def given_back(at_s: float, name: str) -> list[Wire]:
    """Return a message that `bad` gives back, and `good` finishes."""
    about: Wire = {"message_id": name}
    first = [ev("sent", at_s, **about), ev("received", at_s, receive_count=1, consumer="bad", **about)]
    again = [ev("received", at_s + 1, receive_count=2, consumer="good", **about), ev("deleted", at_s + 1.5, **about)]
    return [*first, ev("released", at_s + 0.4, **about), *again]


def replayed(events: list[Wire], until_s: int, every_s: int = 5, **thresholds: float) -> Judged:
    """Judge the events of one queue, a step every five seconds."""
    settings = ev("queue_state", 0, attributes={"visibility_timeout_s": 30, "kind": "standard", "max_receive_count": 5})
    steps = in_steps(sorted([settings, *events], key=lambda e: int(e["at"])), every_s, until_s)
    return judged(steps, Settings(now_is_event_time=True, defaults=Thresholds(**thresholds)))  # type: ignore[arg-type]


def test_nobody_is_blamed_once_all_is_quiet() -> None:
    """The deliveries that it had finished are no longer looked at before the failed ones: its share rises by itself."""
    events = [one for n in range(60) for one in finished(100 + 0.8 * n, f"g{n}", "bad")]
    events += [one for n in range(30) for one in finished(10 * n, f"h{n}", "good")]
    events += [one for n in range(25) for one in given_back(155 + 6 * n, f"b{n}")]
    events += given_back(50, "early")
    found = replayed(events, 900)
    assert not [
        c for c in found.changes if c.finding.key.signal == "QueueFailing" and c.at_ms - found.snapshots[0].at_ms > 420_000
    ]


def test_the_share_of_the_queue_is_that_of_the_whole_window_where_one_consumer_fails() -> None:
    """A shorter time is only looked at where the whole queue fails."""
    events = []
    for n in range(400):
        at_s = 2 * n
        events += given_back(at_s, f"m{n}") if at_s > 300 and n % 4 == 0 else finished(at_s, f"m{n}", "good")
        if n % 8 == 2:
            events += finished(at_s + 0.7, f"x{n}", "bad")
    [finding, *_] = [c.finding for c in replayed(events, 800).changes if c.finding.key.signal == "QueueFailing"]
    assert (finding.evidence["consumer"], finding.blamed) == ("bad", ("bad",))
    assert finding.evidence["window_s"] == 300


def test_a_consumer_that_receives_little_is_blamed_over_an_hour() -> None:
    """It fails a message every two minutes: its deliveries are counted over the whole window, like those of the queue."""
    events = [one for n in range(60) for one in given_back(120 * n, f"b{n}")]
    events += [one for n in range(180) for one in finished(40 * n + 10, f"g{n}", "good")]
    found = replayed(events, 7_200, 20, failing_window_s=3_600)
    [finding] = found.firing("QueueFailing")
    assert finding.evidence["consumer"] == "bad"
    assert finding.evidence["window_s"] == 3_600
    # 30 given back; 30 of those and 90 others finished. The oldest sample of the hour is up to three minutes older.
    assert 150 <= finding.evidence["deliveries"] <= 160
    assert finding.evidence["failed_deliveries"] in (30, 31, 32)
