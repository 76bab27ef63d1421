"""What the core and the judge may be told: lateness, caps and thresholds by queue pattern. Plain, frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from streaming.core.hashing import text_hash
from streaming.core.thresholds import Thresholds


class QueueName(NamedTuple):
    """What makes a queue unique. `scope` is its account and region, broker or the like; empty when nobody reports it."""

    system: str
    scope: str
    queue: str

    def sibling(self, queue: str) -> QueueName:
        """Another queue of the same system and scope."""
        return QueueName(self.system, self.scope, queue)


THRESHOLD_NAMES = frozenset(f.name for f in fields(Thresholds))

DEFAULT_VISIBILITY_S: Mapping[str, float] = {"aws_sqs": 30.0}
"""Visibility timeout of a queue nobody told us about. Systems not named here hold a message until it is settled."""

DEFAULT_RETENTION_S: Mapping[str, float] = {"aws_sqs": 4 * 86_400.0, "cloudflare_queues": 4 * 86_400.0}
LONGEST_RETENTION_S = 14 * 86_400.0
"""No message is tracked longer than this after its send, whatever is known: state must not grow for ever."""


@dataclass(frozen=True)
class QueueRule:
    """Overrides for the queues whose `queue` (or `system/scope/queue`) matches a shell-style pattern. First match wins."""

    pattern: str
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool | None = None
    visibility_timeout_s: float | None = None
    retention_s: float | None = None
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None

    def matches(self, name: QueueName) -> bool:
        return fnmatchcase(name.queue, self.pattern) or fnmatchcase("/".join(name), self.pattern)


@dataclass(frozen=True)
class Settings:
    """Milliseconds (`_ms`), counts, and the thresholds of each queue."""

    lateness_ms: int = 600_000
    """Events older than the newest one by more than this no longer bring a message to life."""

    skew_allowance_ms: int = 300_000
    """Events dated beyond `now` by more are held back to it. A request to AWS that is five minutes off is refused, so no
    sender that works is further ahead."""

    now_is_event_time: bool = False
    """True in a replay: `now` comes from the events, so every shard knows how far time has got."""

    top_k: int = 10
    messages_per_queue: int = 100
    """Suspects, dead letters and held messages listed (and signalled one by one) per queue and kind."""

    groups_per_report: int = 5_000
    consumers_per_report: int = 1_000
    attempts_per_message: int = 32
    forget_queue_after_ms: int = 3_600_000
    """A queue with nothing unsettled and no event for this long vanishes."""

    tag_labels: tuple[str, ...] = ()
    """Tags of a queue (attribute `tags`) that become labels `tag_…` of `queuewatch_queue_info`."""

    slow_strategies: bool = True
    """Also report what the broker's own slow-consumer strategies would say."""

    slow_strategy_params: Mapping[str, Any] = field(default_factory=dict)
    """Their parameters where they differ from the broker's defaults (names of judge.slow_consumer.StrategyParams)."""

    defaults: Thresholds = field(default_factory=Thresholds)
    rules: tuple[QueueRule, ...] = ()
    ordered_queues: frozenset[QueueName] = frozenset()
    """Queues known to keep order though their name does not say so: a replay looks ahead for them."""

    @cached_property
    def fingerprint(self) -> int:
        """64 bits of everything here: equal settings have the same in every process."""
        ordered = sorted(self.ordered_queues)
        return text_hash(repr((replace(self, ordered_queues=frozenset()), ordered)))

    @cached_property
    def _resolved(self) -> dict[QueueName, Thresholds]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_resolved", "fingerprint")}

    def rule(self, name: QueueName) -> QueueRule | None:
        """The first rule whose pattern matches, or None."""
        return next((rule for rule in self.rules if rule.matches(name)), None)

    def thresholds(self, name: QueueName) -> Thresholds:
        """The thresholds of one queue, resolved once."""
        found = self._resolved.get(name)
        if found is None:
            rule = self.rule(name)
            found = replace(self.defaults, **rule.thresholds) if rule else self.defaults
            self._resolved[name] = found
        return found

    def is_ordered(self, name: QueueName) -> bool:
        """Whether all of the queue must be in one shard because its order matters."""
        rule = self.rule(name)
        if rule is not None and rule.ordered is not None:
            return rule.ordered
        return name.queue.endswith(".fifo") or name in self.ordered_queues
