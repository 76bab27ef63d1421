"""The cost of a step while the consumers of many queues fail: every message becomes a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.lines import json_records, message_id
from tests.benchmarks.micro import Chain

MESSAGES_PER_STEP: Final = 2
"""Per queue."""
RECEIVES: Final = 3
STEP_MS: Final = 5_000
WELL, MEASURED = 12, 5
"""Steps in which all is well, and measured ones."""
FAILING: Final = {200: 55, 2_000: 25}
"""Failing queues, and steps in which their messages fail until as many dead letters are listed as can be."""
MOST_MS: Final = {200: 2_500.0, 2_000: 6_000.0}
"""Promised limits, in milliseconds of a core."""
_START_MS: Final = 1_700_000_000_000


def measure(run: Run, *, quick: bool) -> None:
    """Measure the last steps of an outage."""
    for queues, failing in [(20, 6)] if quick else FAILING.items():
        _measure(run, queues, failing)


def _measure(run: Run, queues: int, failing: int) -> None:
    run.say(f"outage: {queues} queues whose messages all become dead letters")
    chain, now = Chain("ndjson"), _START_MS
    for number in range(WELL + failing):
        now += STEP_MS
        chain.take(json_records([*_step(queues, number, now, fails=number >= WELL)]), now)
    steps = iter(range(WELL + failing, WELL + failing + MEASURED))

    def step() -> tuple[list[bytes], int]:
        number = next(steps)
        at = now + (number - WELL - failing + 1) * STEP_MS
        return json_records([*_step(queues, number, at, fails=True)]), at

    spent = chain.median_of(MEASURED, step)
    snapshot = chain.snapshot
    assert snapshot is not None
    letters = sum(finding.key.signal == "DeadLetterArrived" for finding in snapshot.firing)
    failed = sum(finding.key.signal == "QueueFailing" for finding in snapshot.firing)
    detail = {"dead_letters": letters, "failing": failed} | {of: round(1000 * seconds, 2) for of, seconds in spent.items()}
    what = f"{failed:,} queues fail, {letters:,} dead letters: all steps"
    total = 1000 * sum(spent.values())
    run.add(Figure(f"outage.{queues}", what, total, "ms of a core", at_most=MOST_MS.get(queues), detail=detail))


def _step(queues: int, number: int, now: int, *, fails: bool) -> Iterator[dict[str, object]]:
    for queue in range(queues):
        named = {"v": 1, "system": "aws_sqs", "scope": "eu-west-1", "queue": f"orders-{queue:05d}"}
        policy = {"visibility_timeout_s": 30, "max_receive_count": RECEIVES, "dead_letter_queue": f"orders-{queue:05d}-dlq"}
        if number % 6 == 0:
            counts = {"visible": 0, "in_flight": 0, "delayed": 0}
            yield named | {"type": "queue_state", "at": now - 100, "attributes": counts | policy}
        for i in range(MESSAGES_PER_STEP):
            about = named | {"message_id": message_id(queue, number * MESSAGES_PER_STEP + i)}
            by = {"consumer": f"worker-{i}"}
            yield about | {"type": "sent", "at": now - 4_000}
            for receive in range(RECEIVES if fails else 1):
                received_at = now - 3_000 + receive * 600
                yield about | by | {"type": "received", "at": received_at, "receive_count": receive + 1}
                if fails:
                    yield about | by | {"type": "released", "at": received_at + 300, "delay_s": 0}
            if fails:
                moved = {"receive_count": RECEIVES, "to_queue": policy["dead_letter_queue"]}
                yield about | moved | {"type": "dead_lettered", "at": now - 600}
            else:
                yield about | by | {"type": "deleted", "at": now - 2_000}
