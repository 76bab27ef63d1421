"""The judge's memory between evaluations: firing signals, since when conditions hold, and the history.

Stored as JSON followed by the packed history, so that a newer version can read what an older one wrote.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.core.clock import Clock
from streaming.core.reporting.report import ConsumerResults, Purge
from streaming.core.settings import QueueName
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.evaluation_schedule import EvaluationSchedule
from streaming.judge.history import History
from streaming.judge.knowledge.basis import Basis
from streaming.judge.knowledge.evidence import Evidence
from streaming.judge.knowledge.pauses import Pause
from streaming.judge.outcomes import ConsumerMark
from streaming.judge.signals import Finding, SignalKey

VERSION = 3
READABLE_VERSIONS = (2, 3)
"""Version 2 stored its samples differently: it is read without them."""


_MAGIC = b"QWJ4"
_ZLIB_MAGIC = b"QWJ3"
"""Marks blobs written before the first part was compressed with zstd."""
_CODEC = pa.Codec("zstd", compression_level=1)
_QUEUES_PER_FRAME = 256


@dataclass(slots=True)
class QueueMemory:
    """The memory of one queue. Times are epoch milliseconds."""

    since: dict[str, int] = field(default_factory=dict)
    """Condition -> since when it has held without a break."""
    evidence: Evidence = field(default_factory=Evidence)
    """What the broker's counts showed about the telemetry."""
    failed_at: int = 0
    """When QueueFailing last fired."""
    basis: Basis = "unknown"
    basis_since: int = 0
    consumer_marks: list[ConsumerMark] = field(default_factory=list)
    """While deliveries fail, oldest first."""
    counted_arrivals: CountedArrivals = field(default_factory=CountedArrivals)
    holds_counted: dict[int, int] = field(default_factory=dict)
    """Holding-time bucket -> how much of the running total is already in `holds`."""
    holds: dict[int, float] = field(default_factory=dict)
    """Holding-time bucket -> weight; older deletions weigh less."""
    holds_at: int = 0
    strategies: dict[str, Any] = field(default_factory=dict)
    """The memory of the broker's emulated slow-consumer strategies."""
    noisy: dict[str, int] = field(default_factory=dict)
    """Noisy group -> when it last had something in flight."""
    purges: list[Purge] = field(default_factory=list)
    """Purges whose signal has not ended, oldest first: shards report them only while events may be late."""
    pauses: list[Pause] = field(default_factory=list)
    """Pauses of the consumers in the broker's counts, oldest first."""
    paused_at: int = 0
    """The latest count while the queue was paused by its operators."""
    packed: str | None = field(default=None, compare=False, repr=False)
    """All of it as JSON while unchanged: most queues are not judged in a step."""


class _Frame(NamedTuple):
    """A part of the memory's text, compressed."""

    names: list[QueueName]
    """The queues in it."""
    size: int
    """Bytes before compression."""
    packed: bytes

    @classmethod
    def of(cls, text: str, names: list[QueueName] | None = None) -> _Frame:
        """Compress a text."""
        plain = text.encode()
        return cls(names or [], len(plain), _CODEC.compress(plain, asbytes=True))


@dataclass(slots=True)
class JudgeMemory:
    """Everything the judge remembers."""

    queues: dict[QueueName, QueueMemory] = field(default_factory=dict)
    firing: dict[SignalKey, Finding] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    """How many groups, consumers and messages have been folded away so far…"""
    folded_now: dict[str, int] = field(default_factory=dict)
    """…and how many are now, so that only increases are counted."""
    at: int = 0
    history: History = field(default_factory=History)
    clock: Clock = field(default_factory=Clock)
    """Whether the service's own clock is trusted."""
    schedule: EvaluationSchedule = field(default_factory=EvaluationSchedule, compare=False)
    """Not stored: after a restart every queue is judged once."""
    _frames: list[_Frame] = field(default_factory=list, compare=False, repr=False)
    """The queues as they were last written."""

    @classmethod
    def empty(cls) -> JudgeMemory:
        """Return the memory before the first evaluation."""
        return cls()

    def to_bytes(self) -> bytes:
        """Serialize to compressed JSON followed by the history.

        The JSON is compressed in frames, which are decompressed as one: those of unchanged queues are kept.
        """
        body = {
            "version": VERSION,
            "at": self.at,
            "folded": self.folded,
            "folded_now": self.folded_now,
            "clock": asdict(self.clock),
            "firing": [_finding_json(finding) for finding in self.firing.values()],
        }
        self._frames = list(self._written())
        frames = [_Frame.of(f'{_json(body)[:-1]},"queues":['), *self._frames, _Frame.of("]}")]
        size, length = sum(frame.size for frame in frames), sum(len(frame.packed) for frame in frames)
        packed = (frame.packed for frame in frames)
        return b"".join((_MAGIC, struct.pack("<II", length, size), *packed, self.history.to_bytes()))

    def _written(self) -> Iterator[_Frame]:
        names, queues = list(self.queues), list(self.queues.values())
        known = iter(self._frames)
        for first in range(0, len(names), _QUEUES_PER_FRAME):
            of, frame = names[first : first + _QUEUES_PER_FRAME], next(known, None)
            chosen = queues[first : first + _QUEUES_PER_FRAME]
            if frame is None or frame.names != of or None in [q.packed for q in chosen]:
                frame = _Frame.of(("," if first else "") + ",".join(map(_packed, of, chosen)), of)
            yield frame

    @classmethod
    def from_bytes(cls, blob: bytes) -> JudgeMemory:
        """Read the bytes of `to_bytes`. Raises ValueError when they are damaged or of a newer version."""
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
            body = json.loads(text)
        except (zlib.error, struct.error, ValueError, OSError, MemoryError) as error:
            raise ValueError(f"the judge's memory is damaged: {error}") from error
        if body["version"] not in READABLE_VERSIONS:
            raise ValueError(
                f"the judge's memory is of version {body['version']}; this queuewatch reads versions {READABLE_VERSIONS}"
            )
        memory = cls(at=body["at"], folded=body["folded"], folded_now=body.get("folded_now", {}), history=history)
        memory.clock = Clock(**body.get("clock", {}))
        for name, q in body["queues"]:
            memory.queues[QueueName(*name)] = _queue_of(q)
        for key, *reported in body["firing"]:
            known = Finding(SignalKey(*key), *reported)
            memory.firing[known.key] = known
        return memory


_OF_KEY = attrgetter(*SignalKey.__slots__)
_OF_FINDING = attrgetter(*Finding.__slots__[1:])
_OF_ARRIVALS = attrgetter(*CountedArrivals.__slots__)


def _finding_json(finding: Finding) -> list[Any]:
    # Thousands may fire, and all are written in every batch.
    return [_OF_KEY(finding.key), *_OF_FINDING(finding)]


# A shared encoder: `json.dumps` creates a new one per call, and there are thousands.
_json = json.JSONEncoder(separators=(",", ":")).encode


def _packed(name: QueueName, q: QueueMemory) -> str:
    if q.packed is None:
        q.packed = _json([name, _queue_json(q)])
    return q.packed


def _queue_json(q: QueueMemory) -> dict[str, Any]:
    return {
        "since": q.since,
        "evidence": q.evidence.to_list(),
        "basis": [q.basis, q.basis_since],
        "failed_at": q.failed_at,
        "consumer_marks": q.consumer_marks,
        "counted_arrivals": _OF_ARRIVALS(q.counted_arrivals),
        "holds_counted": q.holds_counted,
        "holds": q.holds,
        "holds_at": q.holds_at,
        "strategies": q.strategies,
        "noisy": q.noisy,
        "purges": q.purges,
        # Few queues have any.
        **({"pauses": q.pauses, "paused_at": q.paused_at} if q.pauses or q.paused_at else {}),
    }


def _queue_of(body: dict[str, Any]) -> QueueMemory:
    memory = QueueMemory(
        since=body["since"],
        holds_counted={int(k): v for k, v in body["holds_counted"].items()},
        holds={int(k): v for k, v in body["holds"].items()},
        holds_at=body["holds_at"],
        strategies=body["strategies"],
        noisy=body["noisy"],
        purges=[Purge(*purge) for purge in body.get("purges", ())],
        pauses=[Pause(*pause) for pause in body.get("pauses", ())],
        paused_at=body.get("paused_at", 0),
    )
    if "evidence" in body:
        memory.evidence = Evidence.from_list(body["evidence"])
        memory.basis, memory.basis_since = body["basis"]
        memory.failed_at = body["failed_at"]
        memory.consumer_marks = [
            ConsumerMark(at, {name: ConsumerResults(*results) for name, results in marks.items()})
            for at, marks in body["consumer_marks"]
        ]
        quiet_ids = CountedArrivals.__slots__.index("quiet_ids")
        # A list of inferred arrivals was stored behind the first values for a while.
        stored = [value for i, value in enumerate(body["counted_arrivals"]) if i <= quiet_ids or not isinstance(value, list)]
        memory.counted_arrivals = CountedArrivals(*stored)
    return memory
