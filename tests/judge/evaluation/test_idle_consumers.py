"""Queues of a broker that reports consumers are judged when something is reported: an idle consumer is not slow, however long."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest

from streaming.judge.findings.lasting import is_timed
from streaming.judge.findings.signals import SignalChange
from streaming.judge.judge import judge
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory import JudgeMemory
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, in_steps, in_steps_closely_from, judged

pytestmark = pytest.mark.simulation

POLL_S, STEP_S, UNTIL_S = 15, 2, 1_500
SEEDS = max(1, int(os.environ.get("QUEUEWATCH_EXAMPLES", "60")) // 15)
Events = list[dict[str, Any]]


def mq(type_: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return event(type_, round(1_000 * at_s), "orders") | {"system": "activemq"} | fields


class Broker:
    """A queue with a few consumers. Work comes in bursts with quiet times between, and some consumers hang or leave."""

    def __init__(self, r: random.Random) -> None:
        self._r, self.events = r, Events()
        self._held: list[tuple[float, float, int]] = []
        """When a message was dispatched and acknowledged, and by which consumer."""
        at = 20.0
        while at < UNTIL_S:
            for n in range(r.randint(1, 6)):
                self._message(f"m{at:.0f}-{n}", at + r.uniform(0, 5))
            at += r.choice((10, 100, 250, 400))
        self._left_at = r.choice((UNTIL_S, UNTIL_S, r.uniform(60, UNTIL_S)))
        for second in range(1, UNTIL_S, POLL_S):
            self._poll(second)
        self.events.sort(key=lambda e: e["at"])

    def _message(self, message_id: str, at_s: float) -> None:
        consumer, about = self._r.randrange(3), {"message_id": message_id}
        held_s = self._r.choice((0.2, 1.0, 3.0, 45.0, 130.0))
        self._held.append((at_s, at_s + held_s, consumer))
        self.events.append(mq("sent", at_s, **about))
        who = {"consumer": f"ID:app-{consumer}:1:1"}
        self.events.append(mq("received", at_s, receive_count=1, **about, **who))
        self.events.append(mq("deleted", at_s + held_s, **about, **who))

    def _poll(self, second: float) -> None:
        for consumer in range(3):
            mine = [(begin, end) for begin, end, who in self._held if who == consumer]
            held = sum(begin <= second < end for begin, end in mine)
            acks = [T0 + round(1_000 * end) for _, end in mine if end <= second]
            attributes = {"connected": True, "prefetch": self._r.choice((1, 10)), "dispatched": held, "connected_at": T0}
            if acks:
                attributes["last_ack_at"] = max(acks)
            if consumer == 2 and second >= self._left_at:
                attributes |= {"connected": False, "removed_at": T0 + round(1_000 * self._left_at), "returned": held}
                attributes |= {"connection_open": True, "returned_since": T0 + round(1_000 * self._left_at) - 40_000}
            self.events.append(mq("consumer_state", second, consumer=f"ID:app-{consumer}:1:1", attributes=attributes))
        counts = {"visible": 0, "in_flight": sum(begin <= second < end for begin, end, _ in self._held)}
        self.events.append(mq("queue_state", second, attributes=counts))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_if_the_queue_were_judged_in_every_step(seed: int) -> None:
    """Every change, all that fires, the verdicts of the broker's strategies, and the views."""
    steps = in_steps(Broker(random.Random(seed)).events, STEP_S, UNTIL_S)
    scheduled, every = JudgeMemory.empty(), JudgeMemory.empty()
    for merged in run_steps(steps, SETTINGS):
        scheduled, some, changes = judge(scheduled, merged, merged.now, SETTINGS)
        every, all_, all_changes = judge(replace(every, schedule=EvaluationSchedule()), merged, merged.now, SETTINGS)
        assert list(map(certain, changes)) == list(map(certain, all_changes)), merged.now - T0
        assert [f.key for f in some.firing] == [f.key for f in all_.firing], merged.now - T0
        for view, other in zip(some.queues, all_.queues, strict=True):
            assert replace(view, revision=0) == replace(other, revision=0), merged.now - T0


def certain(change: SignalChange) -> tuple[Any, ...]:
    """Return what is certain of a change: what is said of a slow consumer may be some seconds old."""
    found = change.finding
    evidence = None if is_timed(found.key) else found.evidence
    return change.at_ms, change.status, change.announcement, found.key, found.severity, found.since_ms, evidence


def test_an_idle_queue_is_judged_when_its_consumers_are_polled(evaluated: list[tuple[int, str]]) -> None:
    """Also while other queues come.

    At checks during the quiet its consumer held nothing: the broker would call it slow at the first one after a dispatch.
    """
    state = {"connected": True, "prefetch": 1, "dispatched": 0, "connected_at": T0}
    polled = [mq("consumer_state", at, consumer="ID:app:1:1", attributes=state) for at in range(1, 1_800, 60)]
    counted = [mq("queue_state", at, attributes={"visible": 0, "in_flight": 0}) for at in range(1, 1_800, 60)]
    others = [mq("sent", at, message_id="m", queue=f"reply-{at}") for at in range(900, 1_800, 30)]
    taken = mq("received", 1_805, message_id="m", receive_count=1, consumer="ID:app:1:1")
    events = [*sorted([*polled, *counted, *others], key=lambda e: e["at"]), taken]
    said = judged(in_steps_closely_from(events, 900, (10, 1), 1_830))
    quiet = [at for at, queue in evaluated if 900_000 <= at < 1_800_000 and queue == "orders"]
    assert len(quiet) <= 4 * 15
    assert [(at, status) for at, signal, status, _ in said.changes_seen() if signal == "SlowConsumer"] == [(1_810_000, "firing")]
    [found] = said.firing("SlowConsumer")
    assert found.key.part == "ack"


def polls(seconds: range, **attributes: Any) -> Events:
    """Return what the broker says of an empty queue and its consumer."""
    state = {"connected": True, "prefetch": 10, "dispatched": 0, "connected_at": T0} | attributes
    return [
        one
        for at in seconds
        for one in (
            mq("consumer_state", at, consumer="ID:app:1:1", attributes=state),
            mq("queue_state", at, attributes={"visible": 0, "in_flight": state["dispatched"], "delayed": 0}),
        )
    ]


def test_a_quiet_queue_is_hardly_judged_when_its_consumers_are_polled_and_are_as_before(evaluated: list[tuple[int, str]]) -> None:
    """A thousand queues with five consumers each are polled together."""
    judged(in_steps(polls(range(1, 1_200, POLL_S)), 5, 1_200))
    assert len([at for at, _ in evaluated if at >= 600_000]) <= 5, "of 40 polls"


@pytest.mark.parametrize(
    "other",
    [{"dispatched": 1}, {"prefetch": 1}, {"connected": False, "removed_at": T0 + 600_000, "returned": 0}],
    ids=["it holds a message", "its window is smaller", "it has left"],
)
def test_a_quiet_queue_is_judged_when_a_consumer_is_no_longer_as_before(
    other: dict[str, Any], evaluated: list[tuple[int, str]]
) -> None:
    """In the step of the report."""
    judged(in_steps([*polls(range(1, 600, POLL_S)), *polls(range(600, 601), **other)], 5, 600))
    assert evaluated[-1][0] == 600_000


def test_a_queue_whose_consumers_hold_something_is_judged_whenever_they_are_polled(evaluated: list[tuple[int, str]]) -> None:
    """What a consumer seems to hold is compared with how much the broker counted, and when."""
    about = {"message_id": "m", "consumer": "ID:app:1:1"}
    taken = [mq("sent", 2, message_id="m"), mq("received", 3, receive_count=1, **about)]
    judged(in_steps([*polls(range(1, 2)), *taken, *polls(range(16, 300, POLL_S), dispatched=1)], 1, 300))
    assert {at for at, _ in evaluated} >= {1_000 * at for at in range(16, 300, POLL_S)}
