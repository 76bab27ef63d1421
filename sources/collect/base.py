"""What a collector is."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Protocol, Self

from sources.events import Emit, Event

__all__ = ["Collector", "CollectorRefused", "Emit", "Event"]


class CollectorRefused(Exception):
    """The configuration asks for what must not be done; trying again does not help.

    The message names what is refused, why, and what to change.
    """


class Collector(Protocol):
    """Looks at a system from outside and tells what it sees as events.

    `emit` blocks until its events are safe; a collector that takes telemetry out of somewhere removes it there only
    after `emit` has returned. What `emit` raises means that nothing of the call is safe.
    """

    kind: ClassVar[str]
    """`sqs`, `activemq`, `cloudflare`…"""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """A collector for a section of the configuration, in the model `config_model(kind)`."""
        ...

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Collect until `stop` is set, with a back-off of its own and heartbeats while it succeeds.

        Raises `CollectorRefused`; whatever else it raises makes the runner start it again after a while.
        """
        ...
