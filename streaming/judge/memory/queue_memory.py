"""The judge's memory of one queue: numbers of fixed size, and parts of varying size that are stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final

import numpy as np

from streaming.core.reporting.report import ConsumerResults, Purge
from streaming.core.state.duration_buckets import bucket_of
from streaming.judge.conditions.outcomes import ConsumerMark
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.knowledge.basis import BASES, Basis
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.pauses import Pause


@dataclass(slots=True)
class QueueMemory:
    """The memory of one queue. Times are epoch milliseconds.

    First its parts of fixed size, the basis last: they are read by position.
    """

    evidence: Evidence = field(default_factory=Evidence)
    """What the broker's counts showed about the telemetry."""
    counted_arrivals: CountedArrivals = field(default_factory=CountedArrivals)
    failed_at: int = 0
    """When QueueFailing last fired."""
    pending_at: int = 0
    """When QueueFailing last may have been about to fire."""
    basis_since: int = 0
    processed: int = 0
    """How many messages of known processing time are already in `hold_weights`: see `processed_by_bucket`."""
    holds_at: int = 0
    """When they were last added."""
    paused_at: int = 0
    """The latest count while the queue was paused by its operators."""
    turns_seen: int = 0
    """How many evaluations saw a turn end."""
    basis: Basis = "unknown"
    since: dict[str, int] = field(default_factory=dict)
    """Condition -> since when it has held without a break."""
    consumer_marks: list[ConsumerMark] = field(default_factory=list)
    """While deliveries fail, oldest first."""
    hold_weights: dict[int, float] = field(default_factory=dict)
    """Bucket of processing times (see `duration_buckets`) -> weight; older deletions weigh less."""
    processed_by_bucket: dict[int, int] = field(default_factory=dict)
    """How much of the running total of each bucket is already in `hold_weights`."""
    strategies: dict[str, Any] = field(default_factory=dict)
    """The memory of the broker's emulated slow-consumer strategies."""
    noisy: dict[str, int] = field(default_factory=dict)
    """Noisy group -> when it last had something in flight."""
    purges: list[Purge] = field(default_factory=list)
    """Purges whose signal has not ended, oldest first: shards report them only while events may be late."""
    pauses: list[Pause] = field(default_factory=list)
    """Pauses of the consumers in the broker's counts, oldest first."""
    at_work: dict[str, int] = field(default_factory=dict)
    """Consumer with a prefetch window -> since when it works on the oldest message it holds."""
    turns: dict[int, int] = field(default_factory=dict)
    """How long such consumers worked until they finished the next message: see `turns`."""

    def numbers(self) -> tuple[float, ...]:
        """Return all numbers in the order of `NUMBERS`; the last one is the index of the basis in BASES."""
        evidence = self.evidence
        # Owner by owner: by their paths, each owner would be looked up once for each of its numbers.
        return (
            *(number for claim in _OF_CLAIMS(evidence) for number in _OF_CLAIM(claim)),
            *_OF_EVIDENCE(evidence),
            *_OF_ARRIVALS(self.counted_arrivals),
            *_OF_OWN(self),
            _BASIS_INDEX[self.basis],
        )

    def lists(self) -> str:
        """Return the parts of varying size as JSON without those that are empty; nothing if all are."""
        found = {name: value for name, value in zip(LISTS, _OF_LISTS(self), strict=True) if value}
        return _json(found) if found else ""

    @classmethod
    def of(cls, numbers: tuple[Any, ...], lists: str) -> QueueMemory:
        """Read `numbers()` and `lists()`."""
        claims: list[Any] = [Claim(*numbers[first : first + 3]) for first in range(0, _EVIDENCE.start, 3)]
        # By position, since thousands are read in a step: by name it takes three times as long.
        evidence, arrivals = Evidence(*claims, *numbers[_EVIDENCE]), CountedArrivals(*numbers[_ARRIVALS])
        own: list[Any] = [*numbers[_REST], BASES[numbers[-1]]]
        memory = cls(evidence, arrivals, *own)
        if lists:
            for name, value in _from_json(lists, 0)[0].items():
                if name in _PARTS:
                    owner, attribute, made_of = _PARTS[name]
                    setattr(getattr(memory, owner) if owner else memory, attribute, made_of(value) if made_of else value)
        return memory


def _numbers_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a dataclass that hold one number."""
    return tuple(one.name for one in fields(kind) if one.type in ("int", "float"))


_CLAIMS: Final = tuple(one.name for one in fields(Evidence) if one.type == "Claim")
# Of these, fields that hold no number come last; in the evidence the claims come first.
_IN_CLAIM: Final = _numbers_of(Claim)
_IN_EVIDENCE: Final = _numbers_of(Evidence)
_IN_ARRIVALS: Final = _numbers_of(CountedArrivals)
_OWN: Final = _numbers_of(QueueMemory)
_EVIDENCE: Final = slice(3 * len(_CLAIMS), 3 * len(_CLAIMS) + len(_IN_EVIDENCE))
_ARRIVALS: Final = slice(_EVIDENCE.stop, _EVIDENCE.stop + len(_IN_ARRIVALS))
_REST: Final = slice(_ARRIVALS.stop, -1)
_PLACES: Final = (
    *(f"evidence.{claim}.{name}" for claim in _CLAIMS for name in _IN_CLAIM),
    *(f"evidence.{name}" for name in _IN_EVIDENCE),
    *(f"counted_arrivals.{name}" for name in _IN_ARRIVALS),
    *_OWN,
)
NUMBERS: Final = (*_PLACES, "basis")
"""The name of each number, `evidence.tracked.agreed_since` for one. They are stored by name: what becomes an integer, or no
longer is one, or changes its meaning (as the basis does if BASES are reordered), needs another name."""
FLOATS: Final = frozenset(f"evidence.{one.name}" for one in fields(Evidence) if one.type == "float")
"""Those that are not integers."""
_BASIS_INDEX: Final = {basis: i for i, basis in enumerate(BASES)}
LISTS: Final = (
    *("since", "consumer_marks", "processed_by_bucket", "hold_weights", "strategies", "noisy", "purges", "pauses"),
    *("at_work", "turns"),
    *("evidence.at_counts", "evidence.standstill_lags_ms", "counted_arrivals.quiet_ids"),
)
"""The names of the parts of varying size."""
_OF_CLAIMS, _OF_CLAIM, _OF_EVIDENCE = attrgetter(*_CLAIMS), attrgetter(*_IN_CLAIM), attrgetter(*_IN_EVIDENCE)
_OF_ARRIVALS, _OF_OWN, _OF_LISTS = attrgetter(*_IN_ARRIVALS), attrgetter(*_OWN), attrgetter(*LISTS)
# Shared: `json.dumps` creates a new encoder per call, and `json.loads` looks at all its options. What was written by one has no
# space around it, which `decode` would look for.
_json, _from_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode, json.JSONDecoder().raw_decode


def _by_bucket(value: dict[str, Any]) -> dict[int, Any]:
    return {int(bucket): weight for bucket, weight in value.items()}


def weights_of_earlier(holds: Mapping[str, float]) -> dict[int, float]:
    """Return the weights of buckets that earlier releases had, two for each doubling from one millisecond on."""
    found: dict[int, float] = {}
    for earlier, weight in holds.items():
        bucket = int(bucket_of(np.array([2 ** ((int(earlier) + 0.5) / 2)]))[0])
        found[bucket] = found.get(bucket, 0.0) + weight
    return found


_FROM_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "consumer_marks": lambda value: [
        ConsumerMark(at, {name: ConsumerResults(*results) for name, results in marks.items()}) for at, marks in value
    ],
    "processed_by_bucket": _by_bucket,
    "hold_weights": _by_bucket,
    "purges": lambda value: [Purge(*purge) for purge in value],
    "pauses": lambda value: [Pause(*pause) for pause in value],
    "turns": _by_bucket,
}
"""How a part is made of its JSON; the others are what JSON gives."""
_PARTS: Final = {name: (*name.rpartition(".")[::2], _FROM_JSON.get(name)) for name in LISTS}
_PARTS["holds"] = ("", "hold_weights", weights_of_earlier)
"""Where a part belongs: its owner in the memory (empty: the memory itself) and attribute; and how it is made of its JSON."""
