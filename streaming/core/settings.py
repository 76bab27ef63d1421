"""Settings of the core and the judge: lateness, caps and thresholds by queue pattern. Plain, frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from streaming.core.hashing import text_hash
from streaming.core.thresholds import Thresholds


class QueueName(NamedTuple):
    """The fields that make a queue unique. `scope` is its account and region, its broker or the like; empty when not reported."""

    system: str
    scope: str
    queue: str

    def sibling(self, queue: str) -> QueueName:
        """Return another queue of the same system and scope."""
        return QueueName(self.system, self.scope, queue)


NAMES_KEPT = 1_000_000
"""The number of queues whose configuration is remembered."""

DEFAULT_VISIBILITY_S: Mapping[str, float] = {"aws_sqs": 30.0}
"""Visibility timeout of a queue that reports none. Systems not listed here hold a message until it is settled."""

DEFAULT_RETENTION_S: Mapping[str, float] = {"aws_sqs": 4 * 86_400.0, "cloudflare_queues": 4 * 86_400.0}
"""Retention of a queue that reports none."""
LONGEST_UNHEARD_S = 14 * 86_400.0
"""Systems not listed above keep a message until it is settled. It is no longer tracked when nothing was heard of it, nor of the
broker's counts of its queue, for so long: its end may never be reported, and state must not grow without bound."""


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
class FoldRule:
    """Queues of which `queue` (or `system/scope/queue`) matches a shell-style pattern are shown as one. First match wins."""

    queues: str
    system: str | None = None

    def matches(self, name: QueueName) -> bool:
        if self.system is not None and name.system != self.system:
            return False
        return fnmatchcase(name.queue, self.queues) or fnmatchcase("/".join(name), self.queues)


@dataclass(frozen=True)
class Settings:
    """Settings in milliseconds (`_ms`) and counts, and the thresholds of each queue."""

    lateness_ms: int = 600_000
    """Events older than the newest one by more than this no longer start tracking a message."""

    skew_allowance_ms: int = 300_000
    """Events dated further beyond `now` than this are moved back to it. AWS refuses a request whose clock is five minutes off, so
    no working sender is further ahead."""

    now_is_event_time: bool = False
    """True in a replay: `now` comes from the events, so every shard knows how far time has advanced."""

    top_k: int = 10
    messages_per_queue: int = 100
    """Suspects, dead letters, losses, held messages, stuck groups and slow consumers listed, and signalled one by one, per queue
    and kind."""

    groups_per_report: int = 5_000
    """Oldest groups of a queue without order that each shard reports, besides those with the most in flight."""

    consumers_per_report: int = 1_000
    attempts_per_message: int = 32
    max_queues: int = 100_000
    """Queues with a record; events about further ones are counted and left out. A queue that vanished keeps its record."""

    max_collectors: int = 1_000
    """Collectors whose heartbeats are followed, in the same way."""

    max_messages_per_shard: int = 10_000_000
    """Unsettled messages with a row; further messages are counted and left out, and their queues are known in part."""

    forget_queue_after_ms: int = 3_600_000
    """A queue with nothing unsettled and no event for this long vanishes."""

    tag_labels: tuple[str, ...] = ()
    """Tags of a queue (attribute `tags`) that become labels `tag_…` of `queuewatch_queue_info`."""

    slow_strategies: bool = True
    """Also report the verdicts of the broker's own slow-consumer strategies."""

    slow_strategy_params: Mapping[str, Any] = field(default_factory=dict)
    """Strategy parameters that differ from the broker's defaults (names of judge.slow_consumer.StrategyParams)."""

    defaults: Thresholds = field(default_factory=Thresholds)
    rules: tuple[QueueRule, ...] = ()
    folds: tuple[FoldRule, ...] = ()
    """Which queues are shown together. It changes nothing of what is tracked, judged and signalled."""
    ordered_queues: frozenset[QueueName] = frozenset()
    """Queues known to be ordered although their name does not say so: a replay scans ahead for them."""

    @cached_property
    def fingerprint(self) -> int:
        """Return 64 bits of everything here: equal settings have the same fingerprint in every process."""
        ordered = sorted(self.ordered_queues)
        return text_hash(repr((replace(self, ordered_queues=frozenset()), ordered)))

    @cached_property
    def _resolved(self) -> dict[QueueName, Thresholds]:
        return {}

    @cached_property
    def _fold_of(self) -> dict[QueueName, FoldRule | None]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_resolved", "_fold_of", "fingerprint")}

    def rule(self, name: QueueName) -> QueueRule | None:
        """Return the first rule whose pattern matches, or None."""
        for rule in self.rules:
            if rule.matches(name):
                return rule
        return None

    def fold_of(self, name: QueueName) -> FoldRule | None:
        """The entry that folds the queue with others, found once; None for a queue that is shown by itself."""
        if name not in self._fold_of:
            _make_room(self._fold_of)
            self._fold_of[name] = next((fold for fold in self.folds if fold.matches(name)), None)
        return self._fold_of[name]

    def thresholds(self, name: QueueName) -> Thresholds:
        """Return the thresholds of one queue; each queue is resolved once."""
        found = self._resolved.get(name)
        if found is None:
            rule = self.rule(name)
            found = replace(self.defaults, **rule.thresholds) if rule else self.defaults
            _make_room(self._resolved)
            self._resolved[name] = found
        return found

    def is_ordered(self, name: QueueName) -> bool:
        """Whether the whole queue must be in one shard because its order matters."""
        rule = self.rule(name)
        if rule is not None and rule.ordered is not None:
            return rule.ordered
        return name.queue.endswith(".fifo") or name in self.ordered_queues

    def keeps_order(self, name: QueueName, reported: bool | None) -> bool:
        """Whether the queue keeps order within a group. `reported`: what its events say, where they say something."""
        rule = self.rule(name)
        if reported is False and name not in self.ordered_queues and (rule is None or rule.ordered is None):
            return False
        return self.is_ordered(name)


def _make_room(by_name: dict[QueueName, Any]) -> None:
    """Forget all names if there are very many: queues that come and go have ever new ones."""
    if len(by_name) >= NAMES_KEPT:
        by_name.clear()
