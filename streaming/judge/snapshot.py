"""What one evaluation publishes: everything a page, a scrape or a replay step can show, as plain values.

Times are epoch milliseconds (`_ms`). Ages are not stored: a reader computes them from the timestamps when it is asked,
so a snapshot that is a few seconds old still tells the true age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from streaming.core.reporting.report import AGE_BUCKETS_S as AGE_BUCKETS_S
from streaming.core.reporting.views import Attempt as Attempt
from streaming.core.reporting.views import MessageView as MessageView
from streaming.core.settings import QueueName
from streaming.core.tracking.durations import DURATION_BUCKETS_S as DURATION_BUCKETS_S
from streaming.judge.knowledge.basis import BASES as BASES
from streaming.judge.knowledge.basis import Basis as Basis
from streaming.judge.signals import Finding

AgeScope = Literal["all", "visible", "cloudwatch", "healthy"]
AGE_SCOPES: tuple[AgeScope, ...] = ("all", "visible", "cloudwatch", "healthy")

QueueStatus = Literal["ok", "lagging", "failing", "stalled", "stopped", "stale", "unknown"]
QUEUE_STATUSES: tuple[QueueStatus, ...] = get_args(QueueStatus)

GroupState = Literal["backlog", "in_flight", "blocked", "hidden"]
GROUP_STATES: tuple[GroupState, ...] = ("backlog", "in_flight", "blocked", "hidden")

TOTALS = ("sent", "received", "deleted", "dead_lettered", "redriven", "expired", "dropped", "reconciled")


@dataclass(frozen=True, slots=True)
class GroupView:
    """One ordering group: its head, how deep it is, whether it is blocked by something in flight."""

    group: str
    unsettled: int
    in_flight: int
    oldest_sent_at_ms: int
    head_message_id: str | None
    head_receive_count: int
    last_settled_at_ms: int | None
    stuck: bool


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """What one consumer holds now."""

    consumer: str
    held: int
    oldest_held_since_ms: int | None
    oldest_message_id: str | None
    connected: bool | None = None
    prefetch: int | None = None


class Duration(NamedTuple):
    """How long the messages deleted so far took."""

    counts: tuple[int, ...]
    """Per bucket of DURATION_BUCKETS_S, not cumulated, the last one is +Inf."""
    sum_s: float


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue as of the snapshot's time. `None` means not known: no series is published for it."""

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
    """What is tracked where the basis is `messages`, else the broker's own count."""
    tracked: int
    """Unsettled messages known one by one."""
    oldest_ms: Mapping[AgeScope, int]
    """Per scope the timestamp its age counts from; a scope without a message, or of which nothing can be proved, is absent."""
    age_counts: tuple[int, ...]
    """Unsettled messages per bucket of AGE_BUCKETS_S, not cumulated, the last one is +Inf: len(AGE_BUCKETS_S) + 1. Empty where
    not all messages are known."""
    age_sum_s: float
    totals: Mapping[str, int]
    """By name of TOTALS, those that are reported."""
    receive_count_max: int | None
    poison_messages: int | None
    stuck_groups: int
    groups: Mapping[GroupState, int]
    """Empty when the queue has no groups."""
    top_groups: tuple[GroupView, ...]
    """Oldest first, at most top K."""
    other_groups: int
    """How many groups were folded away; with their oldest message at `other_groups_oldest_ms`."""
    other_groups_oldest_ms: int | None
    consumers: tuple[ConsumerView, ...]
    other_consumers: int
    other_consumers_held_since_ms: int | None
    dead_letter_expires_at_ms: int | None
    time_to_drain_s: float | None
    coverage_ratio: float | None
    messages: tuple[MessageView, ...]
    broker: Mapping[str, Any]
    """Attributes of the latest queue_state, as sent."""
    last_event_at_ms: int
    last_settled_at_ms: int | None
    last_received_at_ms: int | None
    basis: Basis = "messages"
    """Which kind of knowledge there is of the queue…"""
    basis_since_ms: int = 0
    basis_reason: str = ""
    """…why it is that…"""
    next_step: str = ""
    """…and what would improve it; empty when nothing has to."""
    exact_ages: frozenset[str] = frozenset(AGE_SCOPES)
    """The scopes of `oldest_ms` that are exact; the others are at least so old."""
    tracked_states: Mapping[str, int] = field(default_factory=dict)
    """Unsettled messages known one by one, by state; empty when no message was ever reported."""
    dead_letter_queue: str | None = None
    """Where it moves messages that fail, when that is known."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Of the queue's tags those that are to be labels (see `Settings.tag_labels`)."""
    durations: Mapping[str, Duration] = field(default_factory=dict)
    """By name of DURATIONS, those of which any is known."""
    clock_skew_s: float | None = None
    """How far the senders' clocks ran ahead of ours at worst, when they did."""

    @property
    def name(self) -> QueueName:
        """What makes the queue unique."""
        return QueueName(self.system, self.scope, self.queue)


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The watcher itself. Seconds, bytes and counts; `None` where a run has no such thing (a local replay)."""

    batch_id: int | None = None
    batch_duration_s: float | None = None
    last_batch_at_ms: int | None = None
    lag_events: int | None = None
    """Events waiting in the source that no batch has taken."""
    lag_s: float | None = None
    """Age of the newest event taken, when its batch was published."""
    state_bytes: int | None = None
    state_rows: int | None = None
    events_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The merged result of one evaluation."""

    at_ms: int
    queues: Sequence[QueueView]
    """In the order of their names."""
    firing: tuple[Finding, ...]
    events_total: Mapping[str, int]
    """accepted, duplicate, late, invalid."""
    invalid_total: Mapping[str, int] = field(default_factory=dict)
    """Invalid events by reason."""
    collectors: Mapping[str, int] = field(default_factory=dict)
    """Collector name -> time of its last heartbeat."""
    folded: Mapping[str, int] = field(default_factory=dict)
    """`groups`, `consumers`, `messages`: how many were folded away by a cap so far; never less than before."""
    pipeline: PipelineView = field(default_factory=PipelineView)
