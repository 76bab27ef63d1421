"""ClockUntrusted fires while the clock is not trusted or senders are ahead, and survives a restart."""

from __future__ import annotations

from collections import Counter

import numpy as np

from streaming.core.clock import Clock, tick
from streaming.core.reporting.merge import Merged, MergedQueues
from streaming.core.reporting.report import Purge
from streaming.core.settings import QueueName, Settings
from streaming.judge.judge import judge
from streaming.judge.memory import JudgeMemory
from streaming.judge.memory_table import MemoryTable
from streaming.judge.queue_memory import QueueMemory
from streaming.judge.rewind import rewind_memory
from streaming.judge.window import FIELDS

T0 = 1_700_000_000_000
DAY = 86_400_000


def report(now: int, ahead: int = 0) -> Merged:
    """Return a report in which nothing else happened."""
    return Merged(now, 0, MergedQueues([], Settings()), [], Counter(ahead=ahead), Counter(), {}, [], now)


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
