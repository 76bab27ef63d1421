"""The result of one evaluation: everything a page, a scrape or a replay step can show, as plain values.

Times are epoch milliseconds (`_ms`). Ages are not stored: a reader computes them from the timestamps on request, so a snapshot
that is a few seconds old still gives the true age.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.report import AGE_BUCKETS_S as AGE_BUCKETS_S
from streaming.core.reporting.report import AGE_SCOPES as AGE_SCOPES
from streaming.core.reporting.report import AgeScope as AgeScope
from streaming.core.reporting.views import Attempt as Attempt
from streaming.core.reporting.views import MessageView as MessageView
from streaming.core.settings import QueueName
from streaming.core.state.duration_buckets import DURATION_BUCKETS_S as DURATION_BUCKETS_S
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.signals import Finding, SignalName
from streaming.judge.knowledge.basis import BASES as BASES
from streaming.judge.knowledge.basis import Basis as Basis

QueueStatus = Literal["ok", "lagging", "failing", "stalled", "stopped", "stale", "unknown"]
QUEUE_STATUSES: tuple[QueueStatus, ...] = get_args(QueueStatus)

GroupState = Literal["backlog", "in_flight", "blocked", "hidden"]
GROUP_STATES: tuple[GroupState, ...] = ("backlog", "in_flight", "blocked", "hidden")


def is_empty(visible: int | None, in_flight: int | None, delayed: int | None) -> bool:
    """Whether a queue is known to hold no message.

    A broker that does not count delayed messages keeps them elsewhere (ActiveMQ) or counts them as visible (Cloudflare).
    """
    return visible == 0 and in_flight == 0 and not delayed


@dataclass(frozen=True, slots=True)
class GroupView:
    """One ordering group: its head, its depth, and whether a message in flight blocks it."""

    group: str
    unsettled: int
    in_flight: int
    oldest_sent_at_ms: int
    head_message_id: str | None
    head_receive_count: int
    last_settled_at_ms: int | None
    stuck: bool
    standing_since_ms: int | None = None
    """From when on the time counts after which it is stuck; None while its head is delayed, and where groups block nothing."""


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """The messages one consumer holds now."""

    consumer: str
    held: int
    oldest_held_since_ms: int | None
    oldest_message_id: str | None
    connected: bool | None = None
    prefetch: int | None = None


class NativeBuckets(NamedTuple):
    """The buckets of a native histogram that have messages, ascending.

    As bytes: for thousands of queues, an object for each bucket would cost seconds of garbage collection.
    """

    indexes: bytes
    """Integers of two bytes: as Prometheus numbers buckets, or NATIVE_ZERO."""
    counts: bytes
    """Integers of eight bytes."""

    @classmethod
    def of(cls, indexes: Array, counts: Array) -> NativeBuckets:
        """Pack the buckets."""
        return cls(indexes.astype(np.int16, copy=False).tobytes(), counts.astype(np.int64, copy=False).tobytes())

    def to_dict(self) -> dict[int, int]:
        """Return the buckets as index -> messages."""
        return dict(zip(array("h", self.indexes), array("q", self.counts), strict=True))


NO_BUCKETS: Final = NativeBuckets(b"", b"")


class Duration(NamedTuple):
    """The distribution of how long deleted messages took so far."""

    counts: tuple[int, ...]
    """Per bucket of DURATION_BUCKETS_S, not cumulative, the last one is +Inf."""
    sum_s: float
    native: NativeBuckets = NO_BUCKETS
    """Without the messages counted in classic buckets by a release before state version 7, which cannot be divided…"""
    native_sum_s: float = 0.0
    """…as is this sum."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue at the snapshot's time. `None` means unknown: no series is published for it."""

    system: str
    scope: str
    queue: str
    status: QueueStatus
    kind: str | None
    """`standard`, `fifo`… as the broker reports it."""
    ordered: bool
    is_dead_letter_queue: bool
    visible: int | None
    in_flight: int | None
    delayed: int | None
    """The tracked number where the basis is `messages`, else the broker's own count."""
    tracked: int
    """Unsettled messages tracked individually."""
    oldest_ms: Mapping[AgeScope, int]
    """Per scope the timestamp its age counts from; a scope without a message, or with nothing proved, is absent."""
    age_counts: tuple[int, ...]
    """Unsettled messages per bucket of AGE_BUCKETS_S, not cumulative, the last one is +Inf: len(AGE_BUCKETS_S) + 1. Empty where
    not all messages are known."""
    age_sum_s: float
    totals: Mapping[str, int]
    """Running totals by name of `state.queues.TOTALS`, where reported; the sums of times are in `durations`."""
    receive_count_max: int | None
    poison_messages: int | None
    stuck_groups: int
    groups: Mapping[GroupState, int]
    """Empty when the queue has no groups; a state of which the number is not known is absent."""
    top_groups: tuple[GroupView, ...]
    """Oldest first, at most the top K. Where not all messages are known, only groups whose oldest one is certainly there."""
    other_groups: int
    """How many groups were folded away; the oldest message among them dates from `other_groups_oldest_ms`."""
    other_groups_oldest_ms: int | None
    consumers: tuple[ConsumerView, ...]
    other_consumers: int
    other_consumers_held_since_ms: int | None
    dead_letter_expires_at_ms: int | None
    time_to_drain_s: float | None
    coverage_ratio: float | None
    messages: Sequence[MessageView]
    """The listed messages: suspects, heads, held and oldest messages, and dead letters."""
    broker: Mapping[str, Any]
    """Attributes of the latest queue_state, as sent."""
    last_event_at_ms: int
    last_settled_at_ms: int | None
    last_received_at_ms: int | None
    basis: Basis = "messages"
    """The queue's basis of knowledge…"""
    basis_since_ms: int = 0
    basis_reason: str = ""
    """…the reason for it…"""
    next_step: str = ""
    """…and what would improve it; empty when nothing is missing."""
    exact_ages: frozenset[str] = frozenset(AGE_SCOPES)
    """The scopes of `oldest_ms` that are exact; the others are lower bounds of the age."""
    tracked_states: Mapping[str, int] = field(default_factory=dict)
    """Unsettled messages tracked individually, by state; empty when no message was ever reported."""
    dead_letter_queue: str | None = None
    """The queue to which failed messages are moved, when known."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The queue's tags that become labels (see `Settings.tag_labels`)."""
    durations: Mapping[str, Duration] = field(default_factory=dict)
    """Values by name of DURATIONS, where any is known."""
    clock_skew_s: float | None = None
    """How far the senders' clocks ran ahead of ours at most, if they did."""
    near: Mapping[SignalName, Measured] = field(default_factory=dict, compare=False)
    """How near signals are to firing, for those that the other fields do not show…"""
    near_at_ms: int = field(default=0, compare=False)
    """…at this time."""
    members: tuple[QueueName, ...] = ()
    """The queues that are folded into this view; empty for a view of one queue…"""
    worst_member: QueueName | None = None
    """…and the worst of them: by the signals that fire there, its status and its oldest message."""
    revision: int = field(default=0, compare=False)
    """Two views of one revision differ at most in what `moved` changes; 0: no revision."""

    @property
    def name(self) -> QueueName:
        """The queue's unique name."""
        return QueueName(self.system, self.scope, self.queue)

    @property
    def is_empty(self) -> bool:
        """Whether it is known to hold no message."""
        return is_empty(self.visible, self.in_flight, self.delayed)

    def is_oldest_exact(self, scope: AgeScope) -> bool:
        """Whether the queue can hold nothing older than the known oldest message, or no message where none is known."""
        return scope in self.exact_ages if scope in self.oldest_ms else self.is_empty or self.basis == "messages"

    def moved(
        self, age_counts: tuple[int, ...], age_sum_s: float, last_event_at_ms: int, messages: Sequence[MessageView]
    ) -> QueueView:
        """Return a copy with other values of what changes without the queue being judged."""
        # Ten thousand views are copied per scrape, and `dataclasses.replace` takes several times as long.
        copy = object.__new__(QueueView)
        for put, value in zip(_SETTERS, _fields_of(self), strict=True):
            put(copy, value)
        for put, value in zip(_MOVED, (age_counts, age_sum_s, last_event_at_ms, messages), strict=True):
            put(copy, value)
        return copy


def _setter(name: str) -> Callable[[QueueView, object], None]:
    setter: Callable[[QueueView, object], None] = getattr(QueueView, name).__set__
    return setter


_fields_of = attrgetter(*QueueView.__slots__)
_SETTERS = tuple(map(_setter, QueueView.__slots__))
_MOVED = tuple(map(_setter, ("age_counts", "age_sum_s", "last_event_at_ms", "messages")))


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The monitoring pipeline itself. Seconds, bytes and counts; `None` where a run has no such value (a local replay)."""

    batch_id: int | None = None
    batch_duration_s: float | None = None
    last_batch_at_ms: int | None = None
    lag_records: int | None = None
    """Records or files waiting in the source that no batch has read."""
    lag_s: float | None = None
    """Age of the newest event read, when its batch was published."""
    state_bytes: int | None = None
    state_rows: int | None = None
    events_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The merged result of one evaluation."""

    at_ms: int
    queues: Sequence[QueueView]
    """In name order."""
    firing: tuple[Finding, ...]
    events_total: Mapping[str, int]
    """accepted, duplicate, late, ahead, invalid."""
    invalid_total: Mapping[str, int] = field(default_factory=dict)
    """Invalid events by reason."""
    collectors: Mapping[str, int] = field(default_factory=dict)
    """Collector name -> time of its last heartbeat."""
    folded: Mapping[str, int] = field(default_factory=dict)
    """`groups`, `consumers`, `messages`: how many were folded away by a cap so far; never decreases."""
    pipeline: PipelineView = field(default_factory=PipelineView)
    aggregated_queues: Sequence[QueueView] = field(default=(), compare=False)
    """One view for all queues of a pattern, where queues are folded. They are among `queues` as well."""
    behind_ms: int = 0
    """How far `at_ms` was behind the clock: the job is behind its source, or its clock is not trusted. See `core.clock`."""

    def time_at(self, clock_ms: int) -> int:
        """Return the time up to which ages count when the clock reads `clock_ms`; both are epoch milliseconds.

        Of a job that is behind, the clock's time would make every message too old by what has not been read.
        """
        return clock_ms - self.behind_ms

    def rows(self) -> Sequence[QueueView]:
        """What is shown, and has series: the queues that are not folded, and one view for all that are folded together."""
        if not self.aggregated_queues:
            return self.queues
        hidden = {name for aggregated in self.aggregated_queues for name in aggregated.members}
        return [*(view for view in self.queues if view.name not in hidden), *self.aggregated_queues]
