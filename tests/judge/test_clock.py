"""ClockUntrusted fires while the clock is not trusted or senders are ahead, and survives a restart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from streaming.core.clock import Clock, tick
from streaming.core.reporting.merge import Merged, MergedQueues
from streaming.core.reporting.report import Purge
from streaming.core.settings import QueueName, Settings
from streaming.judge.findings.firing import FiringSignals
from streaming.judge.findings.signals import Finding, SignalKey
from streaming.judge.history.window import FIELDS
from streaming.judge.judge import judge
from streaming.judge.knowledge.evidence import Evidence
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.memory.memory_table import MemoryTable
from streaming.judge.memory.queue_memory import QueueMemory
from streaming.judge.memory.rewind import rewind_memory
from streaming.judge.slow_consumer import new_memory

T0 = 1_700_000_000_000
DAY = 86_400_000


def report(now: int, ahead: int = 0) -> Merged:
    """Return a report in which nothing else happened."""
    return Merged(now, 0, MergedQueues([], Settings()), [], 100, Counter(ahead=ahead), Counter(), {}, [], now)


def fired(memory: JudgeMemory, now: int, ahead: int = 0) -> tuple[JudgeMemory, list[tuple[str, str | None, str]]]:
    """Return the memory afterwards, and (status, part, summary) of each change."""
    memory, _, changes = judge(memory, report(now, ahead), now, Settings())
    assert {change.finding.key.signal for change in changes} <= {"ClockUntrusted"}
    said: list[tuple[str, str | None, str]] = [
        (change.status, change.finding.key.part, str(change.finding.evidence["summary"])) for change in changes
    ]
    return JudgeMemory.from_bytes(memory.to_bytes()), said


def test_a_jump_fires_until_it_is_believed_or_over() -> None:
    """The evidence gives how far the clock is off."""
    memory = JudgeMemory(clock=tick(Clock(), T0))
    memory, said = fired(memory, T0)
    assert said == []
    memory.clock = tick(memory.clock, T0 + 30 * DAY)
    memory, said = fired(memory, T0)
    assert [one[:2] for one in said] == [("firing", "service")]
    assert "it reads 30 d ahead of the time of the previous batches" in said[0][2]
    memory.clock = tick(memory.clock, T0 + 1_000)
    _, said = fired(memory, T0 + 1_000)
    assert [one[:2] for one in said] == [("resolved", "service")]


def test_senders_that_are_ahead_fire_for_ten_minutes() -> None:
    """Counted from the last such event; a quarter of an hour later it has ended."""
    memory, said = fired(JudgeMemory.empty(), T0, ahead=2)
    assert [one[:2] for one in said] == [("firing", "senders")]
    assert said[0][2].startswith("2 events so far were dated more than 5 min in the future")
    assert fired(JudgeMemory.empty(), T0, ahead=1)[1][0][2].startswith("1 event so far was dated")
    memory, said = fired(memory, T0 + 599_000, ahead=2)
    assert said == []
    _, said = fired(memory, T0 + 600_000, ahead=2)
    assert [one[:2] for one in said] == [("resolved", "senders")]


def test_the_memory_of_a_wrong_time_is_forgotten() -> None:
    """Otherwise no rate would be computed until that time."""
    purges = [Purge(T0, at, 3, 0, T0 - 1, T0) for at in (T0, T0 + DAY)]
    queue = QueueMemory(since={"coverage": T0 + DAY}, holds_at=T0 + DAY, noisy={"g": T0 + DAY}, purges=purges)
    name = QueueName("s", "", "q")
    memory = JudgeMemory(queues=MemoryTable({name: queue}), at=T0 + DAY)
    for at in (T0, T0 + DAY):
        memory.history.add(at, [name], np.ones((1, len(FIELDS)), dtype=np.int64))
    memory = rewind_memory(memory, T0 + 5)
    queue = memory.queues[name]
    assert (memory.at, queue.since, queue.holds_at, queue.noisy) == (T0 + 5, {"coverage": T0 + 5}, T0 + 5, {"g": T0 + 5})
    assert queue.purges == purges[:1]
    assert memory.history.window(name).at.tolist() == [T0]


def test_a_firing_signal_and_a_consumer_at_work_keep_no_wrong_time() -> None:
    """They fired for no time at all until then, or ended only then; a turn that the wrong clock measured took months."""
    late, name = T0 + DAY, QueueName("s", "", "q")
    slow = {
        "prefetch:a": {**new_memory(), "since_ms": late},
        "prefetch:b": {**new_memory(), "since_ms": T0},
        "ack:a": new_memory(),
    }
    queue = QueueMemory(strategies=slow, at_work={"a": late, "b": T0}, turns={30: T0, 70: late})
    queue.evidence.seen_at, queue.evidence.arrived_at, queue.evidence.group_passed_at = T0, late, late
    findings = [
        Finding(SignalKey("NoisyGroup", *name, group="g"), "warning", late, {}, announced_as="warning"),
        Finding(SignalKey("DeadLetterArrived", *name, message_id="m"), "warning", late, {"arrived_at": late}),
        Finding(SignalKey("DeadLetterArrived", *name, message_id="n"), "warning", T0, {"arrived_at": T0}),
    ]
    memory = JudgeMemory(queues=MemoryTable({name: queue}), firing=FiringSignals({one.key: one for one in findings}), at=late)
    now = T0 + 5
    memory = rewind_memory(memory, now)
    queue = memory.queues[name]
    assert {key: strategy["since_ms"] for key, strategy in queue.strategies.items()} == {
        "prefetch:a": now,
        "prefetch:b": T0,
        "ack:a": None,
    }
    assert (queue.at_work, queue.turns) == ({"b": T0}, {30: T0})
    assert (queue.evidence.seen_at, queue.evidence.arrived_at, queue.evidence.group_passed_at) == (T0, now, now)
    assert list(memory.firing) == [
        replace(findings[0], since_ms=now),
        # Its own time identifies it: with another one it would be announced again.
        replace(findings[1], since_ms=now, evidence={"arrived_at": late, "noticed_at": now}),
        findings[2],
    ]


@pytest.mark.parametrize("kind", ["seen_at", "counted_at", "backlog_at", "visible_at"])
def test_what_counts_of_a_wrong_time_showed_is_forgotten(kind: str) -> None:
    """Whichever kind of count it was."""
    name, queue = QueueName("s", "", "q"), QueueMemory()
    setattr(queue.evidence, kind, T0 + DAY)
    memory = rewind_memory(JudgeMemory(queues=MemoryTable({name: queue}), at=T0 + DAY), T0)
    assert memory.queues[name].evidence == Evidence()
