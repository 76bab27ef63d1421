"""The judge's memory between evaluations: firing signals, what is remembered of each queue, and the history.

Stored as JSON, the table of queues, the packed history, and a checksum. Names are stored with the columns, so that a newer
version can read what an older one wrote.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any, Final

from streaming.core.clock import Clock
from streaming.core.columns import CODEC, DAMAGE
from streaming.judge.findings.firing import FiringSignals
from streaming.judge.findings.signals import Evidence, Finding, Severity, SignalKey, SignalName
from streaming.judge.history.history import History
from streaming.judge.memory.earlier_memory import EARLIER_VERSIONS, read_earlier
from streaming.judge.memory.evaluation_schedule import EvaluationSchedule
from streaming.judge.memory.memory_table import MemoryTable

VERSION: Final = 5
_READABLE: Final = (*EARLIER_VERSIONS, 4, VERSION)
_MAGIC: Final = b"QWJ6"
_MAGIC_UNCHECKED: Final = b"QWJ5"
"""Version 4: the same without the checksum."""
_SIZES: Final = struct.Struct("<III")
"""After the magic: the compressed and the original size of the JSON, and the size of the table."""
_CHECKSUM: Final = struct.Struct("<I")
"""At the end: the CRC-32 of everything before it."""


@dataclass(slots=True)
class JudgeMemory:
    """Everything the judge remembers."""

    queues: MemoryTable = field(default_factory=MemoryTable)
    firing: FiringSignals = field(default_factory=FiringSignals)
    folded: dict[str, int] = field(default_factory=dict)
    """How many groups, consumers and messages have been folded away so far…"""
    folded_now: dict[str, int] = field(default_factory=dict)
    """…and how many are now, so that only increases are counted."""
    at: int = 0
    history: History = field(default_factory=History)
    newest_event_at: int = 0
    """The time of the newest event that was read (epoch milliseconds)."""
    delay_ms: int = 0
    """How much later than that it was read."""
    clock: Clock = field(default_factory=Clock)
    """Whether the service's own clock is trusted."""
    schedule: EvaluationSchedule = field(default_factory=EvaluationSchedule, compare=False)
    """Not stored: after a restart every queue is judged once."""
    written: dict[int, tuple[Finding, str]] = field(default_factory=dict, compare=False, repr=False)
    """By identity, what the firing signals were written as: thousands may go on firing unchanged."""

    @classmethod
    def empty(cls) -> JudgeMemory:
        """Return the memory before the first evaluation."""
        return cls()

    def to_bytes(self) -> bytes:
        """Serialize to compressed JSON, the table of queues, the history and the checksum."""
        body = {
            "version": VERSION,
            "at": self.at,
            "newest_event_at": self.newest_event_at,
            "delay_ms": self.delay_ms,
            "folded": self.folded,
            "folded_now": self.folded_now,
            "clock": asdict(self.clock),
        }
        text = f'{_json(body)[:-1]},"firing":[{",".join(self._written_firing())}]}}'.encode()
        packed, table = CODEC.compress(text, asbytes=True), self.queues.to_bytes()
        parts = (_MAGIC, _SIZES.pack(len(packed), len(text), len(table)), packed, table, self.history.to_bytes())
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        return b"".join((*parts, _CHECKSUM.pack(checksum)))

    def _written_firing(self) -> Iterator[str]:
        """Yield the JSON of every firing signal."""
        before, self.written = self.written, {}
        for finding in self.firing:
            written = before.get(id(finding)) or (finding, _json([finding.key, *_OF_FINDING(finding)]))
            self.written[id(finding)] = written
            yield written[1]

    @classmethod
    def from_bytes(cls, blob: bytes) -> JudgeMemory:
        """Read the bytes of `to_bytes`. Raises ValueError when they are damaged or of a newer version."""
        try:
            body, queues, history = _read(blob)
            version = body["version"]
            if version in _READABLE:
                return cls._of(body, queues, history)
        except DAMAGE as error:
            raise ValueError(f"the judge's memory is damaged: {error!r}") from error
        raise ValueError(f"the judge's memory is of version {version}; this queuewatch reads versions {_READABLE}")

    @classmethod
    def _of(cls, body: dict[str, Any], queues: MemoryTable, history: History) -> JudgeMemory:
        memory = cls(queues=queues, at=body["at"], folded=body["folded"], folded_now=body.get("folded_now", {}), history=history)
        memory.newest_event_at, memory.delay_ms = body.get("newest_event_at", 0), body.get("delay_ms", 0)
        memory.clock = Clock(**body.get("clock", {}))
        firing = (_finding(SignalKey(*key), *reported) for key, *reported in body["firing"])
        memory.firing = FiringSignals({finding.key: finding for finding in firing})
        return memory


def _read(blob: bytes) -> tuple[dict[str, Any], MemoryTable, History]:
    """Return the JSON, the table of queues and the history. Raises one of `DAMAGE`."""
    if blob[:4] not in (_MAGIC, _MAGIC_UNCHECKED):
        return read_earlier(blob)
    checked = blob[:4] == _MAGIC
    if checked:
        blob, (checksum,) = blob[: -_CHECKSUM.size], _CHECKSUM.unpack_from(blob, len(blob) - _CHECKSUM.size)
        if zlib.crc32(blob) != checksum:
            raise ValueError("its checksum is wrong")
    length, size, table = _SIZES.unpack_from(blob, 4)
    text, end = 4 + _SIZES.size, 4 + _SIZES.size + length
    body = json.loads(CODEC.decompress(blob[text:end], size, asbytes=True))
    queues = MemoryTable.from_bytes(blob[end : end + table])
    if not checked:
        # The JSON of a queue is parsed when it is looked up, and by then it is too late to roll back.
        for _ in queues.values():
            pass
    return body, queues, History.from_bytes(blob[end + table :])


_OF_FINDING = attrgetter(*(name for name in Finding.__slots__[1:] if name != "blamed"))


def _finding(
    key: SignalKey,
    severity: Severity,
    since_ms: int,
    evidence: Evidence,
    alerting: bool = True,
    folded: SignalName | None = None,
    announced_as: Severity | bool | None = None,
) -> Finding:
    """Return a finding of its stored values. Earlier releases stored whether it was announced, but not with which severity."""
    if isinstance(announced_as, bool):
        announced_as = severity if announced_as else None
    return Finding(
        key=key,
        severity=severity,
        since_ms=since_ms,
        evidence=evidence,
        alerting=alerting,
        folded=folded,
        announced_as=announced_as,
    )


# A shared encoder: `json.dumps` creates a new one per call, and there are thousands.
_json = json.JSONEncoder(separators=(",", ":")).encode
