"""Consumers on a schedule leave every group waiting while they are away; that is no time in which others pass it over."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
NAME = "scheduled.fifo"
CYCLE_S, WORKING_S = 200, 70
UNTIL_S = 800


def on_a_schedule(groups: int, seed: int, left_out: int | None = None) -> Events:
    """A message is sent every 0.8 s. A worker takes four a second while it is there, each of any group but `left_out`."""
    chance = random.Random(seed)
    out = [ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    sent = [(1 + 0.8 * n, chance.randrange(groups)) for n in range(int(UNTIL_S / 0.8))]
    queues: list[list[int]] = [[] for _ in range(groups)]
    upcoming = 0
    for step in range(4 * UNTIL_S):
        at = step / 4
        while upcoming < len(sent) and sent[upcoming][0] <= at:
            queues[sent[upcoming][1]].append(upcoming)
            upcoming += 1
        waiting = [group for group in range(groups) if queues[group] and group != left_out]
        if at % CYCLE_S < WORKING_S and waiting:
            group = chance.choice(waiting)
            n = queues[group].pop(0)
            about = {"message_id": f"m{n}", "group": f"g{group}"}
            out.append(ev("received", at, NAME, receive_count=1, consumer="w", **about))
            out.append(ev("deleted", at + 0.2, NAME, consumer="w", **about))
    out += [ev("sent", at, NAME, message_id=f"m{n}", group=f"g{group}", sequence=str(n)) for n, (at, group) in enumerate(sent)]
    return sorted(out, key=lambda e: e["at"])


def stuck(events: Events) -> set[str]:
    """Return the groups of which GroupStuck was announced."""
    changes = judged(in_steps(events, 5, UNTIL_S)).changes
    return {str(c.finding.key.group) for c in changes if c.finding.key.signal == "GroupStuck"}


@pytest.mark.parametrize("groups", [4, 20])
def test_groups_do_not_wait_for_each_other_while_no_consumer_is_there(groups: int) -> None:
    """Each time the worker comes back, a younger message may be received before the others."""
    assert not stuck(on_a_schedule(groups, seed=1))


@pytest.mark.parametrize("groups", [4, 20])
def test_a_group_that_is_left_out_each_time_is_stuck(groups: int) -> None:
    """The time adds up for which it waits while others flow."""
    assert stuck(on_a_schedule(groups, seed=1, left_out=1)) == {"g1"}
