"""Groups that wait for their turn are not stuck when the consumers die: the queue is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
NAME = "turns.fifo"
QUEUE = ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 60})
DIES_AT_S = 600


def served_in_turn(groups: int, every_s: float, *, left_out: int | None = None) -> Events:
    """One worker takes a message of each group in turn until it dies; it may leave out one group from its third turn on."""
    out = [QUEUE]
    backlog = int(DIES_AT_S / every_s / groups) + 20
    for n in range(groups * backlog):
        group, turn = n % groups, n // groups
        # Sent group by group, so that the messages of later groups are younger.
        sent_at = 1 + (group * backlog + turn) / 1_000
        about = {"message_id": f"m{n}", "group": f"g{group}", "sequence": str(group * backlog + turn)}
        out.append(ev("sent", sent_at, NAME, **about))
        at = 5 + n * every_s
        if at >= DIES_AT_S or (group == left_out and turn >= 2):
            continue
        out.append(ev("received", at, NAME, receive_count=1, consumer="w", **about))
        out.append(ev("deleted", at + every_s * 0.9, NAME, consumer="w", **about))
    return sorted(out, key=lambda e: e["at"])


def worked_off(batch: int, left_out: int | None = None) -> Events:
    """Two workers take up to `batch` messages, all of one group, and delete each when it is done, two seconds later.

    Of twelve groups, 30 messages of each are sent within five seconds, and one a second from then on. The group with the oldest
    message comes first, apart from `left_out`.
    """
    sent = {n: 1 + n / 72 if n < 360 else n - 354.0 for n in range(DIES_AT_S)}
    out = [QUEUE, *(ev("sent", at, NAME, **of_group(n)) for n, at in sent.items())]
    waiting, free_at = sorted(sent), {"w0": 6.0, "w1": 15.0}
    busy_until = dict.fromkeys(range(12), 0.0)
    while min(free_at.values()) < DIES_AT_S:
        worker = min(free_at, key=lambda name: free_at[name])
        at = free_at[worker]
        here = [n for n in waiting if sent[n] < at and busy_until[n % 12] <= at and n % 12 != left_out]
        taken = [n for n in here if n % 12 == here[0] % 12][:batch]
        for place, n in enumerate(taken, 1):
            out.append(ev("received", at, NAME, receive_count=1, consumer=worker, **of_group(n)))
            out.append(ev("deleted", at + 2 * place, NAME, consumer=worker, **of_group(n)))
            waiting.remove(n)
        free_at[worker] = at + 2 * len(taken) if taken else at + 1
        busy_until |= {n % 12: free_at[worker] for n in taken}
    return sorted(out, key=lambda e: e["at"])


def of_group(n: int) -> dict[str, str]:
    return {"message_id": f"m{n}", "group": f"g{n % 12}", "sequence": str(n)}


def stuck(events: Events, until_s: int) -> list[tuple[float, str | None]]:
    """Return when which groups are reported as stuck, in seconds."""
    run = judged(in_steps(events, 5, until_s))
    began = events[0]["at"]
    firing = [c for c in run.changes if c.finding.key.signal == "GroupStuck" and c.status == "firing"]
    return [((c.at_ms - began) / 1_000, c.finding.key.group) for c in firing]


@pytest.mark.parametrize(("groups", "every_s"), [(8, 10), (20, 4)], ids=["one worker of slow work", "quicker"])
def test_a_worker_that_dies_leaves_no_group_stuck_behind_its_head(groups: int, every_s: float) -> None:
    """Every group has waited for nearly a turn when it dies, and would be reported one after another."""
    assert stuck(served_in_turn(groups, every_s), DIES_AT_S + 290) == []


def test_a_group_that_is_passed_over_while_the_others_flow_is_stuck() -> None:
    """The limit is two minutes, from its last settlement in the second turn."""
    ((at_s, group),) = stuck(served_in_turn(8, 10, left_out=3), DIES_AT_S - 10)
    assert group == "g3"
    assert at_s == pytest.approx(245, abs=6)


def test_groups_wait_for_their_turn_while_batches_of_others_are_worked_off() -> None:
    """A batch contains young messages of its group too. Each group waits for longer than the limit of two minutes."""
    events = worked_off(15)
    received = {e["message_id"]: e["at"] for e in events if e["type"] == "received"}
    longest_s = max(received[e["message_id"]] - e["at"] for e in events if e["type"] == "sent" and e["message_id"] in received)
    assert longest_s > 180_000
    assert stuck(events, DIES_AT_S - 10) == []


def test_a_group_that_is_passed_over_by_batches_of_others_is_stuck() -> None:
    """Once consumers receive what was sent later and could not have been received before, it is not only behind in turn."""
    ((at_s, group),) = stuck(worked_off(15, left_out=3), DIES_AT_S - 10)
    assert group == "g3"
    assert at_s < 480
