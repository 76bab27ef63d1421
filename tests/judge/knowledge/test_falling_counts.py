"""Backlogs of which only the broker's counts are known, and which messages leave without a poll that shows one in flight."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from streaming.core.state.queues import NEVER, Depth
from streaming.judge.knowledge.evidence import Evidence
from streaming.judge.knowledge.standstill import FEWEST_FALLS, update_consumer_activity
from tests.core.driving import T0, event
from tests.judge.driving import Judged, in_steps, judged

POLL_S = 30


def polled(visible: Sequence[int], system: str, **more: Any) -> Judged:
    """Judge a queue that is polled every half minute, in steps of ten seconds."""
    counts = {"in_flight": 0, "delayed": 0, **more}
    events = [
        {**event("queue_state", 1000 * POLL_S * n, attributes=counts | {"visible": one}), "system": system}
        for n, one in enumerate(visible)
    ]
    return judged(in_steps(events, 10, POLL_S * len(visible)))


def stalled_at(found: Judged) -> list[int]:
    """Return when QueueStalled began to fire, in seconds."""
    return [at // 1000 for at, signal, status, _ in found.changes_seen() if (signal, status) == ("QueueStalled", "firing")]


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("system", "visible"),
    [
        pytest.param("aws_sqs", [500 - n for n in range(28)], id="at every poll"),
        pytest.param("aws_sqs", [100 - n // 2 for n in range(28)], id="at every second poll"),
        pytest.param("aws_sqs", [0] * 4 + [1000 - 3 * n for n in range(28)], id="since it came"),
        pytest.param("aws_sqs", [0] * 4 + [500] + [1000 - 3 * n for n in range(28)], id="since it came, in two polls"),
        pytest.param("activemq", [100 - n // 3 for n in range(28)], id="exact counts: at every third poll"),
        pytest.param("activemq", [100 + 3 * n - 7 * (n // 3) for n in range(28)], id="exact counts: between rises"),
    ],
)
def test_a_backlog_that_falls_slowly_is_not_stalled(system: str, visible: list[int]) -> None:
    """It falls by less than a tenth: consumers are there, and no poll catches a message in flight."""
    found = polled(visible, system)
    assert stalled_at(found) == []
    assert found.snapshots[-1].queues[0].status == "ok"


@pytest.mark.simulation
def test_consumers_that_stop_after_a_slow_fall_are_reported() -> None:
    """Five minutes after the last fall, as ever."""
    visible = [100 - n // 2 for n in range(20)]
    (reported,) = stalled_at(polled([*visible, *[visible[-1]] * 20], "activemq"))
    assert 240 <= reported - 18 * POLL_S <= 300


def noisy(share: float, seed: int) -> list[int]:
    """Return three hours of counts of 500 messages that are off by up to this share."""
    random = Random(seed)
    return [round(500 * (1 + random.uniform(-share, share))) for _ in range(360)]


@pytest.mark.simulation
def test_a_standing_backlog_whose_counts_are_off_by_some_per_cent_is_stalled() -> None:
    """It is reported once, and stays reported."""
    found = polled(noisy(0.04, 1)[:120], "aws_sqs")
    (reported,) = stalled_at(found)
    assert reported <= 300
    assert found.firing("QueueStalled")


def with_oldest(oldest_s: Sequence[int], *, every_s: int = 10, system: str = "activemq", **more: Any) -> Judged:
    """Judge a queue of fifty messages: `oldest_s` is when the oldest was sent, at each poll, in seconds from the start."""
    counts = {"visible": 50, "in_flight": 0, "delayed": 0, **more}
    polls = [
        event("queue_state", 10_000 * n, attributes=counts | {"oldest_sent_at": T0 + 1000 * at_s})
        for n, at_s in enumerate(oldest_s)
    ]
    return judged(in_steps([{**poll, "system": system} for poll in polls], every_s, 10 * len(oldest_s)))


@pytest.mark.simulation
@pytest.mark.parametrize("every_s", [10, 60], ids=["judged with each poll", "judged after six of them"])
def test_a_queue_whose_oldest_message_leaves_is_not_stalled(every_s: int) -> None:
    """As many come as are taken: each poll counts fifty, of which the oldest is ten seconds newer. No age follows from that."""
    found = with_oldest([10 * n - 50 for n in range(60)], every_s=every_s)
    assert stalled_at(found) == []
    queue = found.snapshots[-1].queues[0]
    assert queue.status == "ok"
    assert not any(queue.oldest_ms.values())


@pytest.mark.simulation
def test_a_queue_whose_oldest_message_no_longer_leaves_stalls_from_then_on() -> None:
    """The last one was taken between 190 and 200 seconds."""
    (reported,) = stalled_at(with_oldest([10 * min(n, 20) - 50 for n in range(60)]))
    assert reported == 190 + 270


@pytest.mark.simulation
def test_an_oldest_message_that_is_only_known_to_the_minute_shows_no_consumer_by_that() -> None:
    """Its time is derived from an age, and moves up and down by a minute. If it leaves for good, that is seen."""
    assert stalled_at(with_oldest([60 * (n % 2) for n in range(60)], system="aws_sqs")) == [270]
    assert stalled_at(with_oldest([10 * n - 50 for n in range(60)], system="aws_sqs")) == []


@pytest.mark.simulation
def test_after_messages_have_expired_consumers_are_seen_again() -> None:
    """The oldest ones expire until 200 s; then the oldest is taken at each poll."""
    oldest = [max(10 * n - 300, 40 * n - 900) for n in range(40)]
    assert stalled_at(with_oldest(oldest, retention_s=300)) == []


@pytest.mark.simulation
def test_an_oldest_message_that_expires_was_not_taken() -> None:
    """With a retention of five minutes, the message of each poll is the next one to expire."""
    assert stalled_at(with_oldest([10 * n - 300 for n in range(60)], retention_s=300)) == [270]


def observed(visible: Sequence[int], *, retention_ms: int = NEVER, exact: bool = False) -> Evidence:
    """Return the evidence after these counts."""
    e, depths = Evidence(), list[Depth]()
    for n, one in enumerate(visible):
        depths.append(Depth(1000 * POLL_S * (n + 1), one, 0, 0))
        update_consumer_activity(e, depths[:-1], depths[-1], depths[-1].at, active_at=0, exact=exact, retention_ms=retention_ms)
    return e


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("share", [0.002, 0.01, 0.045])
def test_the_error_of_counts_shows_no_consumer(share: float, seed: int) -> None:
    """In hours of them, a few counts in a row are smaller and smaller by chance; after the first minutes that shows nothing."""
    e = observed(noisy(share, seed))
    assert e.frozen_counts > 350


def test_a_rise_ends_a_run_of_falls() -> None:
    """One message more or less in each count is their error, however often it is one less."""
    falls = [500 - n for n in range(FEWEST_FALLS)]
    assert observed([*falls, falls[-1] - 1]).frozen_since == 0
    assert observed([*falls, falls[-1] + 1, *range(falls[-1], falls[-1] - 9, -1)]).frozen_counts == FEWEST_FALLS + 10


@pytest.mark.parametrize("exact", [False, True])
def test_messages_that_expire_one_by_one_show_no_consumer(exact: bool) -> None:
    """The backlog has stood for longer than its retention of an hour."""
    hour = 3_600 // POLL_S
    expire = [500] * hour + [500 - n for n in range(20)]
    assert observed(expire, retention_ms=3_600_000, exact=exact).frozen_counts == len(expire)
    assert observed(expire, retention_ms=2 * 3_600_000, exact=exact).frozen_counts == 0
