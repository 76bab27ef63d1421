"""An engine that judges less often than a replay would, like a live job with a slower trigger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from streaming.core.reporting.merge import Merged
from streaming.core.settings import Settings
from streaming.replay.recording import Step
from streaming.replay.run import Engine, local_engine


def with_trigger_interval(trigger_ms: int) -> Engine:
    """Track in this process, at the shown steps and otherwise at least `trigger_ms` after the previous step."""

    def engine(steps: Iterable[Step], settings: Settings) -> Iterator[tuple[Step, Merged]]:
        return local_engine(_merged(steps, trigger_ms), settings)

    return engine


def _merged(steps: Iterable[Step], trigger_ms: int) -> Iterator[Step]:
    waiting: list[Step] = []
    last: int | None = None
    for step in steps:
        waiting.append(step)
        if step.shown or last is None or step.at - last >= trigger_ms:
            yield _one(waiting)
            waiting, last = [], step.at
    if waiting:
        yield _one(waiting)


def _one(steps: list[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]
    invalid: Counter[str] = sum((s.invalid for s in steps), Counter())
    quarantine = [q for s in steps for q in s.quarantine]
    events = pa.concat_tables([s.events for s in steps])
    return replace(steps[-1], events=events, invalid=invalid, quarantine=quarantine)
