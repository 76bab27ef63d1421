"""What the judge must remember from one evaluation to the next: what fires, since when a condition holds, recent rates.

Kept as JSON, so that a newer version reads what an older one wrote.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from streaming.core.settings import QueueName
from streaming.judge.signals import Finding, SignalKey

VERSION = 2
SAMPLE_EVERY_MS = 10_000
SAMPLES_KEPT_MS = 660_000


@dataclass(slots=True)
class RateSample:
    """A queue's running totals at one time."""

    at: int
    received: int
    settled: int
    retried: int
    unsettled: int
    oldest_visible_at: int
    """0 when nothing was visible."""


@dataclass(slots=True)
class QueueMemory:
    """One queue. Times are epoch milliseconds."""

    since: dict[str, int] = field(default_factory=dict)
    """Condition -> since when it has held without a break."""
    samples: list[RateSample] = field(default_factory=list)
    holds_counted: dict[int, int] = field(default_factory=dict)
    """Holding-time bucket -> how many of the running total are already in `holds`."""
    holds: dict[int, float] = field(default_factory=dict)
    """Holding-time bucket -> weight; older deletions weigh less."""
    holds_at: int = 0
    strategies: dict[str, Any] = field(default_factory=dict)
    """What the emulated slow-consumer strategies of the broker remember."""
    noisy: dict[str, int] = field(default_factory=dict)
    """Noisy group -> when it last had something in flight."""

    def holds_since(self, condition: str, true: bool, now: int, began: int | None = None) -> int | None:
        """Since when `condition` has been true, None when it is not. `began` dates its beginning when that is known."""
        if not true:
            self.since.pop(condition, None)
            return None
        return self.since.setdefault(condition, now if began is None else min(began, now))

    def sample(self, new: RateSample) -> None:
        """Remember the totals of now, not more often than every ten seconds. The one before all windows stays: where the
        queue is judged rarely, it is what there is to compare with."""
        if not self.samples or new.at - self.samples[-1].at >= SAMPLE_EVERY_MS:
            self.samples.append(new)
            while len(self.samples) > 2 and self.samples[1].at < new.at - SAMPLES_KEPT_MS:
                self.samples.pop(0)

    def sample_before(self, at: int) -> RateSample | None:
        """The latest sample not younger than asked for, else the oldest there is."""
        chosen = None
        for sample in self.samples:
            if chosen is None or sample.at <= at:
                chosen = sample
        return chosen


@dataclass(slots=True)
class JudgeMemory:
    """Everything the judge remembers."""

    queues: dict[QueueName, QueueMemory] = field(default_factory=dict)
    firing: dict[SignalKey, Finding] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    """How many groups, consumers and messages were folded away so far…"""
    folded_now: dict[str, int] = field(default_factory=dict)
    """…and how many of them are, so that only more is counted."""
    at: int = 0

    @classmethod
    def empty(cls) -> JudgeMemory:
        """Nothing judged yet."""
        return cls()

    def to_bytes(self) -> bytes:
        """Compressed JSON."""
        body = {
            "version": VERSION,
            "at": self.at,
            "folded": self.folded,
            "folded_now": self.folded_now,
            "queues": [[list(name), _queue_json(q)] for name, q in self.queues.items()],
            "firing": [_finding_json(finding) for finding in self.firing.values()],
        }
        return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)

    @classmethod
    def from_bytes(cls, blob: bytes) -> JudgeMemory:
        """The memory of `to_bytes`. Raises ValueError when it is damaged or of a newer version."""
        try:
            body = json.loads(zlib.decompress(blob))
        except (zlib.error, ValueError) as error:
            raise ValueError(f"the judge's memory is damaged: {error}") from error
        if body["version"] != VERSION:
            raise ValueError(f"the judge's memory is of version {body['version']}; this queuewatch reads version {VERSION}")
        memory = cls(at=body["at"], folded=body["folded"], folded_now=body.get("folded_now", {}))
        for name, q in body["queues"]:
            memory.queues[name[0], name[1], name[2]] = _queue_of(q)
        for key, *told in body["firing"]:
            known = Finding(SignalKey(*key), *told)
            memory.firing[known.key] = known
        return memory


_OF_KEY = attrgetter(*SignalKey.__slots__)
_OF_FINDING = attrgetter(*Finding.__slots__[1:])


def _finding_json(finding: Finding) -> list[Any]:
    # Thousands may fire, and all are written with every batch.
    return [_OF_KEY(finding.key), *_OF_FINDING(finding)]


def _queue_json(q: QueueMemory) -> dict[str, Any]:
    samples = [[s.at, s.received, s.settled, s.retried, s.unsettled, s.oldest_visible_at] for s in q.samples]
    return {
        "since": q.since,
        "samples": samples,
        "holds_counted": q.holds_counted,
        "holds": q.holds,
        "holds_at": q.holds_at,
        "strategies": q.strategies,
        "noisy": q.noisy,
    }


def _queue_of(body: dict[str, Any]) -> QueueMemory:
    return QueueMemory(
        body["since"],
        [RateSample(*values) for values in body["samples"]],
        {int(k): v for k, v in body["holds_counted"].items()},
        {int(k): v for k, v in body["holds"].items()},
        body["holds_at"],
        body["strategies"],
        body["noisy"],
    )
