"""Where nothing reports the visibility timeout, what lasts longer than SQS's default is not taken for what failed."""

from __future__ import annotations

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import SETTINGS, in_steps, judged

pytestmark = pytest.mark.simulation

WORK_S = 250


def stuck(*, timeout_s: int | None, dies: bool = False) -> list[tuple[float, str | None]]:
    """Return when GroupStuck fired, and for which group, where five consumers work on five groups for four minutes a message.

    `dies`: the one of the last group dies with its third message, and the others are never received again.
    """
    events = [] if timeout_s is None else [ev("queue_state", 0, "q.fifo", attributes={"visibility_timeout_s": timeout_s})]
    for n in range(30):
        group, turn = n % 5, n // 5
        about = {"queue": "q.fifo", "message_id": f"m{n}", "group": f"g{group}", "sequence": str(n)}
        begin = 20 + group * 20 + turn * (WORK_S + 1)
        events.append(ev("sent", group * 20 + turn * 15, **about))
        if not dies or group < 4 or turn <= 2:
            events.append(ev("received", begin, receive_count=1, consumer=f"w{group}", **about))
        if not dies or group < 4 or turn < 2:
            events.append(ev("deleted", begin + WORK_S, consumer=f"w{group}", **about))
    run = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 1_500), SETTINGS)
    fired = [c for c in run.changes if c.finding.key.signal == "GroupStuck" and c.status == "firing" and c.finding.alerting]
    return [((c.at_ms - ev("x", 0)["at"]) / 1000, c.finding.key.group) for c in fired]


def test_long_work_holds_up_no_group_once_a_message_was_finished() -> None:
    """Before the first is, nothing tells it from a head that came back and is not received."""
    found = stuck(timeout_s=None)
    assert all(at < 20 + WORK_S for at, _ in found)
    assert stuck(timeout_s=600) == []


def test_a_group_whose_consumer_died_is_reported_after_twice_the_longest_work() -> None:
    (at, group) = stuck(timeout_s=None, dies=True)[-1]
    begin = 20 + 4 * 20 + 2 * (WORK_S + 1)
    assert group == "g4"
    assert begin + WORK_S < at < begin + 3 * WORK_S


def stalled(*, timeout_s: int | None, dies: bool = False) -> list[float]:
    """Return when QueueStalled fired, where three consumers work for ten minutes a message, and a message comes every 400 s.

    `dies`: they are gone after an hour.
    """
    events = [] if timeout_s is None else [ev("queue_state", 0, attributes={"visibility_timeout_s": timeout_s})]
    for n in range(15):
        at, about = 10 + 400 * n, {"message_id": f"m{n}"}
        events.append(ev("sent", at, **about))
        if not dies or at < 3_600:
            events.append(ev("received", at + 1, receive_count=1, consumer=f"w{n % 3}", sent_at=ev("x", at)["at"], **about))
        if not dies or at + 600 < 3_600:
            events.append(ev("deleted", at + 600, consumer=f"w{n % 3}", **about))
    run = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 6_000), SETTINGS)
    fired = [c for c in run.changes if c.finding.key.signal == "QueueStalled" and c.status == "firing"]
    return [(c.at_ms - ev("x", 0)["at"]) / 1000 for c in fired]


def test_long_work_stalls_no_queue_once_a_message_was_finished() -> None:
    """Before the first is, nothing tells it from a message that came back and is not received."""
    assert all(at < 10 + 600 for at in stalled(timeout_s=None))
    assert stalled(timeout_s=900) == []


def test_a_queue_whose_consumers_died_is_stalled_after_twice_the_usual_work() -> None:
    at = stalled(timeout_s=None, dies=True)[-1]
    assert 3_600 < at < 3_600 + 2.5 * 600
