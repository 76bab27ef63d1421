"""Read what the judge remembered when an earlier release stored it: JSON with a list of values per queue.

Version 2 stored its samples differently, so it is read without them. In version 3 the JSON is compressed, with zlib at first.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Final

import pyarrow as pa

from streaming.core.reporting.report import ConsumerResults, Purge
from streaming.core.settings import QueueName
from streaming.judge.conditions.outcomes import ConsumerMark
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.history.history import History
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.pauses import Pause
from streaming.judge.memory.memory_table import MemoryTable
from streaming.judge.memory.queue_memory import QueueMemory, weights_of_earlier

EARLIER_VERSIONS: Final = (2, 3)
_MAGIC: Final = b"QWJ4"
_ZLIB_MAGIC: Final = b"QWJ3"
_CODEC: Final = pa.Codec("zstd")
_CLAIMS: Final = frozenset({"tracked", "ends", "sends", "rows"})
EVIDENCE_ORDER: Final = (
    "seen_at",
    "counted_at",
    "tracked",
    "ends",
    "sends",
    "rows",
    "exact_ends",
    "exact_sends",
    "counted_sum",
    "tracked_sum",
    "tracked_sum_late",
    "in_flight_sum",
    "tracked_in_flight_sum",
    "tracked_in_flight_sum_late",
    "frozen_since",
    "frozen_counts",
    "frozen_most",
    "life_at",
    "frozen_sure_at",
    "alive_most",
    "visible_since",
    "backlog_at",
    "backlog_since",
    "backlog_first",
    "backlog_most",
    "backlog",
    "tracked_sum_soon",
    "tracked_in_flight_sum_soon",
    "group_passed_at",
    "late_ms",
    "least_late_ms",
    "standstill_at",
    "arrived_at",
    "exact_at",
    "above",
    "below",
    "at_counts",
    "exact_in_flight",
    "standstill_counted_at",
    "standstill_counted",
    "standstill_if_complete_at",
    "standstill_lags_ms",
)
"""The order in which the values of the evidence were stored; later ones at the end."""
_ARRIVALS: Final = (
    "depth",
    "arrived",
    "unexplained",
    "since",
    "announced",
    "shown",
    "at",
    "quiet_ids",
    "uncounted",
    "uncounted_at",
    "rose_at",
)


def read_earlier(blob: bytes) -> tuple[dict[str, Any], MemoryTable, History]:
    """Return the JSON, what is remembered of each queue, and the history. Raises ValueError when damaged."""
    history = History()
    try:
        if blob[:4] == _MAGIC:
            length, size = struct.unpack_from("<II", blob, 4)
            text = _CODEC.decompress(blob[12 : 12 + length], size, asbytes=True)
            history = History.from_bytes(blob[12 + length :])
        elif blob[:4] == _ZLIB_MAGIC:
            (length,) = struct.unpack_from("<I", blob, 4)
            text = zlib.decompress(blob[8 : 8 + length])
            history = History.from_bytes(blob[8 + length :])
        else:
            text = zlib.decompress(blob)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    body: dict[str, Any] = json.loads(text)
    return body, MemoryTable({QueueName(*name): _queue_of(queue) for name, queue in body["queues"]}), history


def evidence_of(values: list[Any]) -> Evidence:
    """Return the evidence stored as a list in field order. Fields that a release lacked keep their defaults."""
    known: dict[str, Any] = {name: Claim(*v) if name in _CLAIMS else v for name, v in zip(EVIDENCE_ORDER, values, strict=False)}
    evidence = Evidence(**known)
    if "tracked_sum_soon" not in known:
        # Stored before these sums existed.
        evidence.tracked_sum_soon, evidence.tracked_in_flight_sum_soon = evidence.tracked_sum, evidence.tracked_in_flight_sum
    return evidence


def arrivals_of(values: list[Any]) -> CountedArrivals:
    """Return the arrivals stored as a list in this order. A list of inferred arrivals came after the ids for a while."""
    quiet_ids = _ARRIVALS.index("quiet_ids")
    stored = [value for i, value in enumerate(values) if i <= quiet_ids or not isinstance(value, list)]
    return CountedArrivals(**dict(zip(_ARRIVALS, stored, strict=False)))


def _queue_of(body: dict[str, Any]) -> QueueMemory:
    memory = QueueMemory(
        since=body["since"],
        hold_weights=weights_of_earlier(body["holds"]),
        holds_at=body["holds_at"],
        strategies=body["strategies"],
        noisy=body["noisy"],
        purges=[Purge(*purge) for purge in body.get("purges", ())],
        pauses=[Pause(*pause) for pause in body.get("pauses", ())],
        paused_at=body.get("paused_at", 0),
    )
    if "evidence" in body:
        memory.evidence = evidence_of(body["evidence"])
        memory.basis, memory.basis_since = body["basis"]
        memory.failed_at = body["failed_at"]
        memory.consumer_marks = [
            ConsumerMark(at, {name: ConsumerResults(*results) for name, results in marks.items()})
            for at, marks in body["consumer_marks"]
        ]
        memory.counted_arrivals = arrivals_of(body["counted_arrivals"])
    return memory
