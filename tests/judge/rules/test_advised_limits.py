"""What a signal advises to set is accepted by the queue's system."""

from __future__ import annotations

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import SETTINGS, Judged, Step, judged

HOUR_S, DAY_S = 3_600, 86_400


def outlived(timeout_s: int, work_s: int) -> Judged:
    """Judge a queue whose ten consumers each work on one message for longer than its window."""
    began = [
        ev("queue_state", 0, attributes={"visibility_timeout_s": timeout_s, "kind": "standard", "dead_letter_queue": "dead"})
    ]
    ended = []
    for n in range(10):
        about = {"message_id": f"m{n}", "consumer": f"w{n}"}
        began += [ev("sent", 0, message_id=f"m{n}"), ev("received", 1, receive_count=1, **about)]
        ended.append(ev("deleted", 1 + work_s, **about))
    end_ms = (work_s + 1) * 1000
    steps: list[Step] = [(1_000, began), (end_ms - 1_000, []), (end_ms, ended), (end_ms + 1_000, [])]
    return judged(steps, SETTINGS)


@pytest.mark.parametrize(
    ("timeout_s", "work_s", "fits_s", "advice"),
    [
        (30, 45, 70, "Raise the visibility timeout to 70 s or more, or extend"),
        (8 * HOUR_S, 9 * HOUR_S, 12 * HOUR_S, "Raise the visibility timeout to 43200 s, or extend"),
        (12 * HOUR_S, 13 * HOUR_S, None, "No visibility timeout is longer than 12 h: divide the work."),
    ],
    ids=["far below the longest", "the longest is enough", "no timeout is enough"],
)
def test_a_visibility_timeout_is_at_most_twelve_hours(timeout_s: int, work_s: int, fits_s: int | None, advice: str) -> None:
    """SQS refuses a longer one, and extends no window beyond it."""
    (found,) = outlived(timeout_s, work_s).firing("WindowTooShort")
    assert found.evidence.get("timeout_that_fits_s") == fits_s
    assert advice in found.summary


@pytest.mark.parametrize(
    ("timeout_s", "work_s", "advice"),
    [
        (30, 45, "Raise it to six times the usual processing time, or extend"),
        (3 * HOUR_S, 4 * HOUR_S, "Raise it to 12 h, or extend"),
        (12 * HOUR_S, 13 * HOUR_S, "No visibility timeout is longer than 12 h: divide the work."),
    ],
    ids=["six times", "the longest", "none"],
)
def test_six_times_the_usual_work_may_be_too_long(timeout_s: int, work_s: int, advice: str) -> None:
    """The lint says what is possible."""
    (found,) = [f for f in outlived(timeout_s, work_s).firing("QueueMisconfigured") if f.key.part == "short_visibility"]
    assert advice in found.summary


@pytest.mark.parametrize(
    ("retention_s", "advice"),
    [(4 * DAY_S, "Raise the retention, ideally to 14 days."), (14 * DAY_S, "shorten the retention of q.")],
    ids=["can be raised", "is the longest"],
)
def test_a_retention_is_at_most_fourteen_days(retention_s: int, advice: str) -> None:
    """A dead-letter queue that keeps messages for so long cannot keep them for longer."""
    own = {"kind": "standard", "retention_s": retention_s, "dead_letter_queue": "dead", "max_receive_count": 3}
    reports = [ev("queue_state", 0, attributes=own), ev("queue_state", 0, "dead", attributes={"retention_s": retention_s})]
    (found,) = [f for f in judged([(1_000, reports)], SETTINGS).firing("QueueMisconfigured") if f.key.queue == "q"]
    assert found.key.part == "dead_letter_retention"
    assert found.summary.endswith(advice)
