"""The interface of a collector."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Protocol, Self

from sources.events import Emit, Event

__all__ = ["Collector", "CollectorRefused", "Emit", "Event"]


class CollectorRefused(Exception):
    """The configuration asks for something that must not be done; retrying does not help.

    The message names what is refused, why, and what to change.
    """


class Collector(Protocol):
    """Observes a system from outside and reports what it sees as events.

    `emit` blocks until its events are stored safely; a collector that removes telemetry from its source does so only after
    `emit` has returned. If `emit` raises, none of its events is safe.
    """

    kind: ClassVar[str]
    """`sqs`, `activemq`, `cloudflare`…"""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Create a collector from a section of the configuration, in the model `config_model(kind)`."""
        ...

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Collect until `stop` is set, with its own back-off, and heartbeats while it succeeds.

        Raises `CollectorRefused`; after any other exception, or a return before `stop` is set, the runner restarts it after a
        pause.
        """
        ...
