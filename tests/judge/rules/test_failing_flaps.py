"""QueueFailing fires once for one incident, also where so few deliveries end that their number is always near its limit."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from tests.core.driving import event
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

SETTINGS = Settings(now_is_event_time=True)
FINISHED, GIVEN_BACK = "deleted", "released"


def deliveries(gaps_s: list[int], outcome: str, from_s: int, until_s: int) -> list[dict[str, Any]]:
    """Return deliveries of new messages that end this way after two seconds; the gaps between them take turns."""
    events, gaps, at = [], itertools.cycle(gaps_s), from_s * 1000
    while at < until_s * 1000:
        about = {"message_id": f"m{at}"}
        later = {"visible_at": event("x", at)["at"] + 86_400_000} if outcome == GIVEN_BACK else {}
        events += [
            event("sent", at, **about),
            event("received", at + 500, receive_count=1, consumer="c", **about),
            event(outcome, at + 2_500, consumer="c", **about, **later),
        ]
        at += next(gaps) * 1000
    return events


def test_a_broken_queue_with_little_traffic_pages_once() -> None:
    """Every delivery fails, and in five minutes between 17 and 23 end: the number alone must not end and start the signal."""
    bursts = [10] * 20 + [18] * 20
    events = [
        event("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 60}),
        *deliveries([13], FINISHED, 1, 600),
        *deliveries(bursts, GIVEN_BACK, 600, 2400),
        *deliveries([13], FINISHED, 2400, 3300),
    ]
    changes = [c for c in judged(in_steps(events, 5, 3300), SETTINGS).changes if c.finding.key.signal == "QueueFailing"]
    assert [c.status for c in changes] == ["firing", "resolved"]
    # The end comes as deliveries succeed again, within the five minutes that are looked at.
    assert event("x", 2400_000)["at"] < changes[1].at_ms <= event("x", 2700_000)["at"]


@pytest.mark.parametrize("visibility_timeout_s", [30, 60, 120, 180, 360, 900])
def test_a_broken_deploy_pages_once_whatever_the_visibility_timeout(visibility_timeout_s: int) -> None:
    """What was finished before the deploy is within the longest time that is looked at: it must not end the signal.

    A Lambda function that fails gives its messages back at once, and they come back when their window ends.
    """
    events = [
        event("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": visibility_timeout_s}),
        *deliveries([1], FINISHED, 1, 600),
        *deliveries([1], GIVEN_BACK, 600, 900),
        *deliveries([1], FINISHED, 900, 1300),
    ]
    changes = [c for c in judged(in_steps(events, 5, 1300), SETTINGS).changes if c.finding.key.signal == "QueueFailing"]
    assert [c.status for c in changes] == ["firing", "resolved"]
    assert changes[0].at_ms <= event("x", 660_000)["at"]
    sentence, summary = "% of the deliveries of orders have failed for ", changes[0].finding.evidence["summary"]
    assert re.match(rf"\d+{sentence}\d+ s \(\d+ of \d+ ended without a settlement\)\. Its consumers fail", summary), summary
    assert event("x", 900_000)["at"] < changes[1].at_ms <= event("x", 1_200_000)["at"]


@pytest.mark.parametrize(("window_s", "fires"), [(660, False), (1_800, True)])
def test_a_queue_with_little_traffic_fails_within_a_window_that_is_long_enough(window_s: float, fires: bool) -> None:
    """A delivery a minute fails: twenty of them need more than the eleven minutes that are sampled every ten seconds."""
    events = [
        event("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 60}),
        *deliveries([60], FINISHED, 1, 3_000),
        *deliveries([60], GIVEN_BACK, 3_000, 5_400),
    ]
    settings = replace(SETTINGS, defaults=Thresholds(failing_window_s=window_s))
    found = judged(in_steps(events, 20, 5_400), settings).firing("QueueFailing")
    assert bool(found) is fires
    if fires:
        evidence = found[0].evidence
        assert evidence["window_s"] == window_s
        assert 30 <= evidence["deliveries"] <= 32
        assert evidence["failed_ratio"] == 1
        assert event("x", 3_000_000)["at"] <= evidence["failing_since"] <= event("x", 3_100_000)["at"]
