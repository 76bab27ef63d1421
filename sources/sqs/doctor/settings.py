"""The settings of queues as the rules read them, whether from SQS, a Terraform plan or a template.

`None` is "not known" throughout: nothing is concluded from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["standard", "fifo"]

LAMBDA_TIMEOUT_S: Final = 3.0
"""AWS's default for a function that sets none."""

# Queues to which SNS, EventBridge or Lambda send failures have no source queue: their name is the only sign.
_LOOKS_LIKE_DEAD_LETTERS: Final = re.compile(r"(?i)dlq|dead[-_]?letter|(^|[-_.])dead([-_.]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A redrive policy."""

    target: str | None = None
    """Key of the dead-letter queue (`QueueSettings.key`), or its ARN if it is not among the examined queues."""
    max_receive_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveAllow:
    """The queues allowed to use a queue as dead-letter queue."""

    permission: str
    """`allowAll`, `denyAll` or `byQueue`."""
    sources: frozenset[str] | None = None
    """Names of the source queues of `byQueue`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """The most recently started redrive task of a dead-letter queue."""

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
    """Its ARN, or its address in the file that declares it."""
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
    """The sum of visible, in-flight and delayed messages."""
    move_task: MoveTask | None = None
    consumers: tuple[LambdaConsumer, ...] = ()
    usual_processing_s: float | None = None
    """The usual processing time of a message, as stated by the user."""
    has_sources: bool = False
    """Whether it is known to receive another queue's dead letters, whichever queues are examined."""

    @property
    def looks_like_dead_letters(self) -> bool:
        """Whether its name indicates that it holds failures."""
        return _LOOKS_LIKE_DEAD_LETTERS.search(self.name) is not None


@dataclass(frozen=True, slots=True)
class Queues:
    """Everything known about the queues examined together: those of one region, or of the given files."""

    by_key: Mapping[str, QueueSettings]
    missing: frozenset[str] = frozenset()
    """ARNs of non-existent queues that redrive policies name."""
    _dead_letter_keys: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, queues: Iterable[QueueSettings], missing: Iterable[str] = ()) -> Queues:
        """Build the collection by key; dead-letter queues are recognised by the redrive policies that name them."""
        by_key = {queue.key: queue for queue in queues}
        targets = frozenset(q.redrive.target for q in by_key.values() if q.redrive is not None and q.redrive.target is not None)
        return cls(by_key, frozenset(missing), targets)

    def dead_letter_queue_of(self, queue: QueueSettings) -> QueueSettings | None:
        """Return the queue of its dead letters, if its settings are known."""
        target = queue.redrive.target if queue.redrive is not None else None
        return self.by_key.get(target) if target is not None else None

    @property
    def has_unknown_targets(self) -> bool:
        """Whether the target of some redrive policy is unknown."""
        return any(queue.redrive is not None and queue.redrive.target is None for queue in self.by_key.values())

    def is_dead_letter_queue(self, queue: QueueSettings) -> bool:
        """Whether a redrive policy names it."""
        return queue.has_sources or queue.key in self._dead_letter_keys


def finite(value: float | str) -> float | None:
    """Return the number that a file states, None for text that is none and for what no setting can be, such as `.inf`."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
