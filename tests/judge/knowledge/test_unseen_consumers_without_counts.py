"""Half of the consumers report, and no collector counts: receive counts that jump show the other half."""

from __future__ import annotations

from typing import Any

from tests.contract.replaying import ev
from tests.core.driving import T0, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged, judged_reports

WINDOW_S, UNTIL_S = 30, 1_500


def one(n: int, at: float, receivers: list[bool], *, finished: bool = True) -> list[dict[str, Any]]:
    """Return a message and its receives, each `True` if that consumer reports. All but the last one fail."""
    about = {"message_id": f"m{n}"}
    out = [ev("sent", at, **about)]
    for count, reports in enumerate(receivers, 1):
        got_at = at + 1 + (WINDOW_S + 1) * (count - 1)
        if reports:
            until = T0 + round((got_at + WINDOW_S) * 1000)
            out.append(ev("received", got_at, receive_count=count, consumer="w", invisible_until=until, **about))
            if finished and count == len(receivers):
                out.append(ev("deleted", got_at + 1, consumer="w", **about))
    return out


def bases(*parts: list[dict[str, Any]]) -> dict[int, tuple[str, bool]]:
    """Return, by the second, the basis and whether the age of the oldest message is exact."""
    events = sorted((e for part in parts for e in part), key=lambda e: e["at"])
    found = judged(in_steps(events, 10, UNTIL_S)).snapshots
    return {(s.at_ms - T0) // 1000: (q.basis, q.is_oldest_exact("all")) for s in found for q in s.queues}


def test_ages_are_not_exact_once_receive_counts_jump() -> None:
    """What seems to wait may be long gone. That stays so while these messages seem to wait, when nothing fails any more."""
    messages = []
    for n in range(280):
        reports = n % 2 == 0
        messages += one(n, 5 * n, [False, True] if n % 10 == 0 and n < 100 else [reports])
    assert {known for at, known in bases(messages).items() if at >= 400} == {("partial", False)}


def test_a_few_lost_reports_change_nothing() -> None:
    """A consumer that is killed loses its last ones."""
    messages = [e for n in range(280) for e in one(n, 5 * n, [True])]
    lost = [e for n in range(4) for e in one(1_000 + n, 300, [False, True])]
    assert {basis for basis, _ in bases(messages, lost).values()} == {"messages"}


def test_it_ends_after_a_quarter_of_an_hour_in_a_queue_that_has_gone_quiet_too() -> None:
    """Nothing arrives any more, so that only time shows it."""
    events = sorted((e for n in range(30) for e in one(n, 5 * n, [False, True])), key=lambda e: e["at"])
    tracked = run_steps(in_steps(events, 10, UNTIL_S), SETTINGS)
    seldom, always = judged_reports(tracked), judged_reports(tracked, every_queue=True)
    partial = [[s.at_ms - T0 for s in found.snapshots for q in s.queues if q.basis == "partial"] for found in (seldom, always)]
    assert partial[0] == partial[1]
    assert 1_000_000 < partial[0][-1] < 1_200_000


def test_dead_letters_of_a_queue_that_is_seen_in_part_may_be_others_than_are_known() -> None:
    """No count shows those whose moves nobody reported, so their age is a lower bound. With all consumers it is exact."""
    moved = [
        ev("queue_state", 0, attributes={"dead_letter_queue": "dead", "max_receive_count": 3}),
        ev("sent", 1, message_id="bad"),
        *(ev("received", 2 + 40 * n, message_id="bad", receive_count=n + 1, consumer="w") for n in range(3)),
        ev("dead_lettered", 125, message_id="bad", to_queue="dead"),
    ]
    for half, known in ((True, ("partial", False)), (False, ("messages", True))):
        flow = [e for n in range(280) for e in one(n, 5 * n, [False, True] if half and n % 2 else [True])]
        events = sorted([*moved, *flow], key=lambda e: e["at"])
        found = judged(in_steps(events, 10, UNTIL_S)).snapshots
        (dead,) = (queue for queue in found[-10].queues if queue.queue == "dead")
        assert (dead.basis, dead.is_oldest_exact("all")) == known
        assert not half or dead.basis_reason == "not all deliveries of q are seen, so some of its moves may be missing"
