"""Splits a load into batches with an exact number of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from tests.benchmarks.lifecycles import Lifecycles
from tests.benchmarks.shape import Shape


def batches(shape: Shape, events: int) -> Iterator[pa.Table]:
    """Yield tables of exactly `events` events, in order, without end."""
    waiting: list[pa.Table] = []
    count = 0
    for table in Lifecycles(shape).windows():
        waiting.append(table)
        count += table.num_rows
        while count >= events:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, events)
            waiting = [joined.slice(events)]
            count -= events


def ending_at(shape: Shape, end_ms: int, events: int) -> Shape:
    """Return the same load, shifted in time so that about `events` events after the backlog end at `end_ms`."""
    return replace(shape, start_ms=end_ms - round(1000 * events / shape.events_per_s))
