"""The settings of queues as the rules read them, whether they come from SQS, a Terraform plan or a template.

`None` is "not known" throughout: nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["standard", "fifo"]

# Queues that SNS, EventBridge or Lambda send failures to have no source queue: their name is all that tells.
_LOOKS_LIKE_DEAD_LETTERS: Final = re.compile(r"(?i)dlq|dead[-_]?letter|(^|[-_.])dead([-_.]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A redrive policy."""

    target: str | None = None
    """Key of the dead-letter queue (`QueueSettings.key`), or its ARN where it is not among the examined."""
    max_receive_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveAllow:
    """Who may use a queue as dead-letter queue."""

    permission: str
    """`allowAll`, `denyAll` or `byQueue`."""
    sources: frozenset[str] | None = None
    """Names of the source queues of `byQueue`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """The redrive task of a dead-letter queue that was started last."""

    status: str
    failure_reason: str | None = None
    moved: int | None = None
    to_move: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaConsumer:
    """A Lambda function that an event source mapping feeds from a queue."""

    function: str
    timeout_s: float | None = None
    batch_size: int | None = None
    batching_window_s: float = 0.0
    reports_item_failures: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """One queue."""

    key: str
    """Its ARN, or its address in the file it is declared in."""
    name: str
    arn: str | None = None
    url: str = ""
    """Its queue URL, in an account."""
    scope: str | None = None
    """`account/region`, or the file."""
    kind: Kind = "standard"
    visibility_timeout_s: float | None = None
    retention_s: float | None = None
    redrive: Redrive | None = None
    """None: there is no redrive policy."""
    redrive_allow: RedriveAllow | None = None
    encrypted: bool | None = None
    deduplication_scope: str | None = None
    throughput_limit: str | None = None
    messages: int | None = None
    """Visible, in flight and delayed together."""
    move_task: MoveTask | None = None
    consumers: tuple[LambdaConsumer, ...] = ()
    usual_processing_s: float | None = None
    """How long a message is usually worked on, as somebody who knows says."""
    has_sources: bool = False
    """Whether it is known to receive another queue's dead letters, whoever else is examined."""

    @property
    def looks_like_dead_letters(self) -> bool:
        """Whether its name says that it holds failures."""
        return _LOOKS_LIKE_DEAD_LETTERS.search(self.name) is not None


@dataclass(frozen=True, slots=True)
class Queues:
    """All that is known of the queues examined together: of one region, or of the files given."""

    by_key: Mapping[str, QueueSettings]
    missing: frozenset[str] = frozenset()
    """ARNs of queues that redrive policies name and that do not exist."""
    _dead_letter_keys: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, queues: Iterable[QueueSettings], missing: Iterable[str] = ()) -> Queues:
        """The queues by key, dead-letter queues recognised by who names them."""
        by_key = {queue.key: queue for queue in queues}
        targets = frozenset(q.redrive.target for q in by_key.values() if q.redrive is not None and q.redrive.target is not None)
        return cls(by_key, frozenset(missing), targets)

    def dead_letter_queue_of(self, queue: QueueSettings) -> QueueSettings | None:
        """The queue its dead letters go to, when its settings are known."""
        target = queue.redrive.target if queue.redrive is not None else None
        return self.by_key.get(target) if target is not None else None

    @property
    def has_unknown_targets(self) -> bool:
        """Whether some redrive policy leads to nobody knows which queue."""
        return any(queue.redrive is not None and queue.redrive.target is None for queue in self.by_key.values())

    def is_dead_letter_queue(self, queue: QueueSettings) -> bool:
        """Whether a redrive policy names it."""
        return queue.has_sources or queue.key in self._dead_letter_keys
