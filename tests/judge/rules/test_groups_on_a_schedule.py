"""Consumers on a schedule leave every group waiting while they are away; that is no time in which others pass it over."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
NAME = "scheduled.fifo"


@dataclass(frozen=True)
class Schedule:
    """A worker takes a message every `work_s` while it is there, the first `works_s` of each cycle. All in seconds."""

    cycle_s: int
    works_s: int
    send_every_s: float
    work_s: float
    until_s: int


BUSY = Schedule(200, 70, send_every_s=0.8, work_s=0.25, until_s=800)
QUIET = Schedule(900, 240, send_every_s=20, work_s=1, until_s=3_600)


def events_of(schedule: Schedule, groups: int, left_out: int | None = None) -> Events:
    """Return messages of random groups. The worker takes the next of any group but `left_out`."""
    chance = random.Random(2)
    out = [ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    sent = [
        (1 + schedule.send_every_s * n, chance.randrange(groups)) for n in range(int(schedule.until_s / schedule.send_every_s))
    ]
    out += [ev("sent", at, NAME, message_id=f"m{n}", group=f"g{group}", sequence=str(n)) for n, (at, group) in enumerate(sent)]
    backlogs: list[list[int]] = [[] for _ in range(groups)]
    upcoming = 0
    for turn in range(int(schedule.until_s / schedule.work_s)):
        at = turn * schedule.work_s
        while upcoming < len(sent) and sent[upcoming][0] <= at:
            backlogs[sent[upcoming][1]].append(upcoming)
            upcoming += 1
        waiting = [group for group in range(groups) if backlogs[group] and group != left_out]
        if at % schedule.cycle_s < schedule.works_s and waiting:
            group = chance.choice(waiting)
            about = {"message_id": f"m{backlogs[group].pop(0)}", "group": f"g{group}"}
            out.append(ev("received", at, NAME, receive_count=1, consumer="w", **about))
            out.append(ev("deleted", at + 0.8 * schedule.work_s, NAME, consumer="w", **about))
    return sorted(out, key=lambda e: e["at"])


def stuck(schedule: Schedule, groups: int, left_out: int | None = None) -> list[tuple[int, str]]:
    """Return when GroupStuck began, in seconds, and of which group."""
    changes = judged(in_steps(events_of(schedule, groups, left_out), 5, schedule.until_s)).changes
    began = [c for c in changes if c.finding.key.signal == "GroupStuck" and c.status == "firing"]
    return [((c.at_ms - T0) // 1000, str(c.finding.key.group)) for c in began]


@pytest.mark.parametrize("groups", [4, 20])
def test_groups_do_not_wait_for_each_other_while_no_consumer_is_there(groups: int) -> None:
    """Each time the worker comes back, a younger message may be received before the others."""
    assert not stuck(BUSY, groups)


def test_a_quiet_queue_may_be_announced_until_its_schedule_is_known() -> None:
    """With little traffic, a pause may as well be one in which only the messages of a stuck group are there."""
    began = stuck(QUIET, 12)
    assert {at_s // QUIET.cycle_s for at_s, _ in began} <= {1}


@pytest.mark.parametrize(("schedule", "groups"), [(BUSY, 4), (BUSY, 20), (QUIET, 4)], ids=str)
def test_a_group_that_is_left_out_each_time_is_stuck(schedule: Schedule, groups: int) -> None:
    """The time adds up for which it waits while others flow."""
    began = stuck(schedule, groups, left_out=1)
    assert "g1" in {group for _, group in began}
    assert "g1" in {group for at_s, group in began if at_s < 2 * schedule.cycle_s}
