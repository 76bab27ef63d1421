"""Recognise temporary queues, which clients create for replies and which end with their connection: they are not reported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sources.events import Event

_NAME: Final = re.compile(r"(?:ID:.+|(?:(?!ID:).)+)-\d+-\d{13}-\d+:\d+:\d+")
"""The broker names a temporary queue after its connection (`ID:host-port-milliseconds-number:connection`) and a number. A client
may put a prefix of its own (`connectionIDPrefix`) in the place of `ID:host`."""


def is_temporary(queue: str) -> bool:
    """Whether a queue has the name of a temporary one.

    A client that reconnects sends to it by name, and the broker then makes an ordinary queue of that name.
    """
    return ":" in queue and _NAME.fullmatch(queue) is not None


def of_lasting_queues(events: Iterable[Event]) -> list[Event]:
    """Return the events that are not about temporary queues."""
    return [event for event in events if not is_temporary(str(event.get("queue", "")))]
