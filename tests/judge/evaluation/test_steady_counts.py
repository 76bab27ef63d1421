"""A broker's count equal to the previous one does not make a queue be judged again, and nothing is missed by that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged, judged_reports

pytestmark = pytest.mark.simulation

EVERY_S = 10
MINUTE_MS = 60_000


def counted(minute: int, visible: int = 0, **more: Any) -> dict[str, Any]:
    """A count of the broker."""
    counts = {"visible": visible, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    return event("queue_state", minute * MINUTE_MS, attributes=counts | more)


def worked(minute: int) -> list[dict[str, Any]]:
    """Return a message sent, received and deleted in the middle of a minute."""
    at, named = minute * MINUTE_MS + 30_000, {"message_id": f"m{minute}"}
    received = event("received", at + 1_000, receive_count=1, **named)
    return [event("sent", at, **named), received, event("deleted", at + 2_000, **named)]


ONLY_COUNTED = [counted(minute) for minute in range(40)]
ALL_REPORTED = [*ONLY_COUNTED, *(one for minute in range(20) for one in worked(minute))]


@pytest.mark.parametrize("events", [ONLY_COUNTED, ALL_REPORTED], ids=["counts alone", "all reported"])
def test_a_quiet_queue_is_judged_every_other_minute(events: list[dict[str, Any]], evaluated: list[tuple[int, str]]) -> None:
    """Its counts come every minute, and steps every ten seconds."""
    judged(in_steps(events, EVERY_S, 40 * 60))
    quiet = [at for at, _ in evaluated if at > 32 * MINUTE_MS]
    assert len(quiet) <= 5, "of 48 steps"
    assert quiet, "the counts are taken in before they are forgotten"


def test_a_queue_of_few_messages_is_judged_when_one_comes_and_hardly_in_between(evaluated: list[tuple[int, str]]) -> None:
    """A message every four minutes, in steps of ten seconds: two evaluations with its events, and two later ones."""
    events = [*(counted(minute) for minute in range(60)), *(e for minute in range(0, 60, 4) for e in worked(minute))]
    judged(in_steps(events, EVERY_S, 60 * 60))
    assert len([at for at, _ in evaluated if at > 40 * MINUTE_MS]) <= 20, "of 120 steps, with five messages"


def test_a_backlog_known_by_counts_is_judged_every_five_to_ten_seconds(evaluated: list[tuple[int, str]]) -> None:
    """In steps of a second, its bounds are as old as the samples; its status is not."""
    backlog = [counted(minute, visible=500 + minute % 3, in_flight=5) for minute in range(12)]
    judged(in_steps(backlog, 1, 12 * 60))
    late = [at for at, _ in evaluated if at > 6 * MINUTE_MS]
    assert 36 <= len(late) <= 120, "of 360 steps"


def test_a_new_queue_with_little_traffic_is_not_judged_in_every_step(evaluated: list[tuple[int, str]]) -> None:
    """Until its counts have agreed for five minutes, messages may have been passed over; here there are too few for that."""
    events = [*(event("sent", 100 * n, message_id=f"m{n}") for n in range(3)), *(counted(n, visible=3) for n in range(5))]
    for n in range(2):
        at = MINUTE_MS * n + 30_100
        events += [event("received", at, message_id=f"m{n}", receive_count=1), event("deleted", at + 100, message_id=f"m{n}")]
        events.append(event("sent", at + 200, message_id=f"m{n + 3}"))
    judged(in_steps(sorted(events, key=lambda e: e["at"]), 1, 145))
    assert len([at for at, _ in evaluated if at > MINUTE_MS]) <= 20, "of 85 steps"


@pytest.mark.parametrize(
    "other",
    [counted(36, visible=4), counted(36, visibility_timeout_s=60), event("sent", 36 * MINUTE_MS, message_id="new")],
    ids=["another count", "another setting", "a message"],
)
@pytest.mark.parametrize("events", [ONLY_COUNTED, ALL_REPORTED], ids=["counts alone", "all reported"])
def test_what_is_new_is_judged_in_its_step(
    events: list[dict[str, Any]], other: dict[str, Any], evaluated: list[tuple[int, str]]
) -> None:
    """However long nothing had happened."""
    judged(in_steps([*(e for e in events if e["at"] < T0 + 36 * MINUTE_MS), other], EVERY_S, 36 * 60))
    assert evaluated[-1][0] == 36 * MINUTE_MS


@pytest.mark.parametrize("before", [ONLY_COUNTED, ALL_REPORTED], ids=["counts alone", "all reported"])
def test_a_stall_after_a_quiet_time_is_reported_as_if_every_count_had_been_judged(before: list[dict[str, Any]]) -> None:
    """The skipped counts are evidence nevertheless."""
    stalled = [counted(minute, visible=min(3 * (minute - 39), 30)) for minute in range(40, 60)]
    sends = [
        event("sent", minute * MINUTE_MS + 20_000 * i - 60_000, message_id=f"s{minute}-{i}")
        for minute in range(40, 50)
        for i in range(3)
    ]
    events = sorted([*before, *stalled, *(sends if before is ALL_REPORTED else ())], key=lambda e: e["at"])
    tracked = run_steps(in_steps(events, EVERY_S, 60 * 60), SETTINGS)
    seldom, always = judged_reports(tracked), judged_reports(tracked, every_queue=True)
    assert seldom.changes_seen() == always.changes_seen()
    assert [list(s.queues) for s in seldom.snapshots] == [list(s.queues) for s in always.snapshots]
    assert seldom.firing("QueueStalled")


def test_an_equal_count_confirms_that_a_dead_letter_queue_was_emptied() -> None:
    """One count of zero may be stale. After two of them, what comes has arrived."""
    named = [event("queue_state", 0, "orders", attributes={"dead_letter_queue": "dead"})]
    depths = [*[3] * 12, 0, 0, 2, 2, 2, 2]
    polls = [
        event("queue_state", n * MINUTE_MS, "dead", attributes={"visible": v, "in_flight": 0, "delayed": 0})
        for n, v in enumerate(depths)
    ]
    found = judged(in_steps([*named, *polls], EVERY_S, 18 * 60))
    (fired,) = found.firing("DeadLetterArrived")
    assert fired.evidence["at_least"] == 2


def test_messages_sent_after_a_skipped_count_do_not_contradict_it() -> None:
    """The count was zero, and so were the tracked messages then: three that came since are no more than the broker had."""
    sent = [event("sent", 37 * MINUTE_MS + 15_000, message_id=f"new{n}") for n in range(3)]
    found = judged(in_steps([*(e for e in ALL_REPORTED if e["at"] <= T0 + 37 * MINUTE_MS), *sent], EVERY_S, 37 * 60 + 30))
    (queue,) = found.snapshots[-1].queues
    assert queue.coverage_ratio == 1.0
