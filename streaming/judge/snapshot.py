"""What one evaluation publishes: everything a page, a scrape or a replay step can show, as plain values.

Times are epoch milliseconds (`_ms`). Ages are not stored: a reader computes them from the timestamps when it is asked,
so a snapshot that is a few seconds old still tells the true age.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streaming.judge.signals import Finding

AgeScope = Literal["all", "visible", "cloudwatch", "healthy"]
AGE_SCOPES: tuple[AgeScope, ...] = ("all", "visible", "cloudwatch", "healthy")

QueueStatus = Literal["ok", "lagging", "stalled", "stopped", "stale"]
QUEUE_STATUSES: tuple[QueueStatus, ...] = ("ok", "lagging", "stalled", "stopped", "stale")

GroupState = Literal["backlog", "in_flight", "blocked", "hidden"]
GROUP_STATES: tuple[GroupState, ...] = ("backlog", "in_flight", "blocked", "hidden")

TOTALS = ("sent", "received", "deleted", "dead_lettered", "redriven", "expired", "dropped", "reconciled")

AGE_BUCKETS_S: tuple[float, ...] = (1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 14_400, 43_200, 86_400, 345_600)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that happened to a message, for its timeline. `end_ms` is the end of the window it opened, if any."""

    at_ms: int
    what: Literal["received", "extended", "released"]
    receive_count: int
    end_ms: int | None
    consumer: str | None


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message somebody may ask about: a suspect, a head, a dead letter, one of the oldest."""

    message_id: str
    state: Literal["visible", "in_flight", "delayed"]
    sent_at_ms: int
    receive_count: int
    why: tuple[str, ...]
    """Why it is listed: `poison`, `held`, `head`, `dead_letter`, `oldest`."""
    group: str | None = None
    sequence: str | None = None
    consumer: str | None = None
    last_received_at_ms: int | None = None
    invisible_until_ms: int | None = None
    arrived_at_ms: int | None = None
    """Dead letters: when it came into this queue."""
    expires_at_ms: int | None = None
    arrival_known_by: str | None = None
    """Dead letters: `event`, `first_receive` or `inferred`."""
    attempts: tuple[Attempt, ...] = ()


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
    tracked: int
    """Unsettled messages known one by one; the counts above fall back to the broker's own when it is zero."""
    oldest_ms: Mapping[AgeScope, int]
    """Per scope the timestamp its age counts from; a scope without a message is absent."""
    age_counts: tuple[int, ...]
    """Unsettled messages per bucket of AGE_BUCKETS_S, not cumulated, the last one is +Inf: len(AGE_BUCKETS_S) + 1."""
    age_sum_s: float
    totals: Mapping[str, int]
    """By name of TOTALS."""
    receive_count_max: int
    poison_messages: int
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
    clock_skew_s: float | None = None
    """How far the senders' clocks ran ahead of ours at worst, when they did."""


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
    queues: tuple[QueueView, ...]
    firing: tuple[Finding, ...]
    events_total: Mapping[str, int]
    """accepted, duplicate, late, invalid."""
    invalid_total: Mapping[str, int] = field(default_factory=dict)
    """Invalid events by reason."""
    collectors: Mapping[str, int] = field(default_factory=dict)
    """Collector name -> time of its last heartbeat."""
    folded: Mapping[str, int] = field(default_factory=dict)
    """`groups`, `consumers`, `messages`, `signals`: how many were folded away by a cap."""
    pipeline: PipelineView = field(default_factory=PipelineView)
