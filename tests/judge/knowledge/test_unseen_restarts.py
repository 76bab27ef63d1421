"""CloudWatch's age restarts at the end of every third receive: where that one was not seen, it is a lower bound."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import judged

CONFIG = ev("queue_state", 0, attributes={"visibility_timeout_s": 30})


def received(*counts_at: tuple[int | None, int], **about: Any) -> list[dict[str, Any]]:
    """Return a message and its receives: count and time of each."""
    events = [CONFIG, ev("sent", 1, message_id="m", **about)]
    for count, at in counts_at:
        fields: dict[str, Any] = {**about, "receive_count": count} if count else about
        events.append(ev("received", at, message_id="m", consumer="w", **fields))
    return events


@pytest.mark.parametrize(
    ("receives", "since_s", "exact"),
    [
        ([(1, 10), (2, 50)], 1, True),
        ([(2, 50)], 1, True),
        ([(1, 10), (2, 50), (3, 90)], 120, True),
        ([(3, 90)], 120, True),
        ([(None, 10), (None, 50), (None, 90)], 120, True),
        ([(1, 10), (2, 50), (4, 130)], 130, False),
        ([(4, 130)], 130, False),
        ([(4, 130), (5, 170)], 130, False),
        ([(4, 130), (6, 170)], 200, True),
    ],
    ids=str,
)
def test_the_third_receive_decides(receives: list[tuple[int | None, int]], since_s: int, exact: bool) -> None:
    """It may be seen after others that were not."""
    [queue] = judged([(300_000, received(*receives))]).snapshots[-1].queues
    assert (queue.oldest_ms["cloudwatch"], "cloudwatch" in queue.exact_ages) == (T0 + since_s * 1000, exact)
    assert "all" in queue.exact_ages


def test_until_the_window_of_a_third_receive_is_over_the_one_before_it_decides() -> None:
    """The sixth is in flight: the age still counts from the end of the third, which was not seen."""
    events = received((4, 130), (6, 170))
    [before], [after] = (judged([(at_ms, events)]).snapshots[-1].queues for at_ms in (190_000, 201_000))
    assert "cloudwatch" not in before.exact_ages
    assert "cloudwatch" in after.exact_ages


def test_in_order_nothing_restarts() -> None:
    """CloudWatch's age of a FIFO queue does not restart, so it does not matter which receives were seen."""
    events = received((4, 130), group="g", queue="q.fifo")[1:]
    [queue] = judged([(300_000, events)]).snapshots[-1].queues
    assert (queue.oldest_ms["cloudwatch"], "cloudwatch" in queue.exact_ages) == (T0 + 1_000, True)
