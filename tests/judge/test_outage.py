"""Many queues whose messages all become dead letters: each is judged by the dead letters of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Never

from streaming.core.reporting.report import Arrival
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, in_steps

QUEUES = 12
UNTIL_S = 60
POLICY = {"visibility_timeout_s": 30, "max_receive_count": 3}


class NotRead(list[Arrival]):
    """The dead letters of all queues: with thousands of failing queues there is no time to read them for each."""

    def __iter__(self) -> Never:
        raise AssertionError("the dead letters of all queues were read")


def outage() -> Iterator[dict[str, Any]]:
    for queue in (f"orders-{n}" for n in range(QUEUES)):
        to: dict[str, Any] = {"dead_letter_queue": f"{queue}-dlq"}
        yield event("queue_state", 0, queue=queue, attributes=POLICY | to)
        for second in range(1, UNTIL_S):
            about: dict[str, Any] = {"queue": queue, "message_id": f"{queue}-{second}", "consumer": "worker"}
            for receives in (1, 2, 3):
                at_ms = 1_000 * second + 200 * receives
                yield event("received", at_ms, **about, receive_count=receives)
                yield event("released", at_ms + 100, **about)
            moved = {"receive_count": 3, "to_queue": f"{queue}-dlq"}
            yield event("dead_lettered", 1_000 * second + 800, **about | moved)


def test_a_failing_queue_reads_the_dead_letters_of_no_other() -> None:
    memory = JudgeMemory.empty()
    for merged in run_steps(in_steps(list(outage()), 10, UNTIL_S)):
        merged.arrivals = NotRead(merged.arrivals)
        memory, snapshot, _ = judge(memory, merged, merged.now, SETTINGS)
    signals = [finding.key.signal for finding in snapshot.firing]
    assert signals.count("QueueFailing") == QUEUES
    assert all(finding.folded for finding in snapshot.firing if finding.key.signal == "DeadLetterArrived")
    assert signals.count("DeadLetterArrived") == QUEUES * (UNTIL_S - 1)
