"""Topics that are filled with a load before a measurement begins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from tests.benchmarks.batches import batches, ending_at
from tests.benchmarks.figures import Run
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.records import EVENTS_PER_RECORD, FORM_NAMES, Form, records
from tests.benchmarks.shape import Shape
from tests.services.kafka import Kafka

_PIECE: Final = 100_000
"""Events encoded at a time: a multiple of every form's record size."""
_LIVE_EVENTS_PER_S: Final = 20_000.0
"""High, so that a backlog of a million messages waits for minutes and not for longer than the lateness…"""
_BACKLOG_S: Final = 50
"""…and higher for more messages: the backlog is never more than this many seconds of events."""
_SPAN_S: Final = 300
"""Event time that a load covers unless its shape needs more: half the lateness, so that no event is late."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A filled topic."""

    name: str
    form: Form
    events: int
    records: int

    @property
    def events_per_record(self) -> int:
        """The number of events, equal in every record."""
        return EVENTS_PER_RECORD[self.form]


def fill(
    run: Run, kafka: Kafka, jvm: Jvm, form: Form, events: int, partitions: int, *, live: int = 0, shape: Shape | None = None
) -> Topic:
    """Create a topic with `events` events that end now, after a backlog of `live` messages.

    `events` and `live` are rounded down to multiples of 100,000. `shape`: the load, whose backlog and rate are set here.
    """
    pieces = (events + live) // _PIECE
    rate = max(_LIVE_EVENTS_PER_S, live / _BACKLOG_S) if live else max(10_000.0, events / _SPAN_S)
    shape = replace(shape or Shape(), live=live // _PIECE * _PIECE, events_per_s=rate)
    shape = ending_at(shape, int(time.time() * 1000), events)
    name = kafka.create_topic(partitions=partitions)
    began = time.monotonic()

    def values() -> Iterator[bytes]:
        for table in islice(batches(shape, _PIECE), pieces):
            yield from records(table, form)

    sent = jvm.fill(kafka.bootstrap, name, partitions, values())
    run.say(f"  {pieces * _PIECE:,} events as {FORM_NAMES[form]} in {time.monotonic() - began:.0f} s")
    return Topic(name, form, pieces * _PIECE, sent)
