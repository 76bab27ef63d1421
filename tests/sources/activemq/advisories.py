"""Short builders for advisories: tests name what matters and get defaults for the rest."""

from typing import Any

from sources.activemq.advisory import ConsumerAdded, MessageAdvisory, MessageBody, MessageKind
from sources.activemq.lifecycle import Lifecycle, Limits
from sources.activemq.queue_traits import QueueTraits
from sources.events import Event

START_MS = 1_800_000_000_000
QUEUE = "orders"
A, B = "ID:app-1:1:1", "ID:app-2:1:1"


def body(**changes: Any) -> MessageBody:
    """Return the body of a message that entered at START_MS; times are milliseconds since then, None means never."""
    fields: dict[str, Any] = {
        "in_ms": 0,
        "out_ms": None,
        "produced_ms": 0,
        "expires_ms": None,
        "redeliveries": 0,
        "group": None,
        "position": 7,
        "origin_queue": None,
        "in_dead_letter_queue": False,
        "failure": None,
    }
    fields.update(changes)
    for name in ("in_ms", "out_ms", "produced_ms", "expires_ms"):
        fields[name] = 0 if fields[name] is None else START_MS + fields[name]
    return MessageBody(**fields)


def seen(kind: MessageKind, *, queue: str = QUEUE, message: str = "m", by: str | None = None, **changes: Any) -> MessageAdvisory:
    """Return an advisory about a message; `empty=True` leaves out its body."""
    empty = changes.pop("empty", False)
    return MessageAdvisory(kind, queue, message, by, None if empty else body(**changes))


def consumer(name: str = A, *, queue: str = QUEUE, prefetch: int = 1, **changes: Any) -> ConsumerAdded:
    """Return the advisory that announces a consumer."""
    connection, session, _ = name.rsplit(":", 2)
    fields: dict[str, Any] = {"client_id": None, "exclusive": False, "network": False, "browser": False}
    return ConsumerAdded(name, connection, int(session), queue, prefetch, **{**fields, **changes})


class DrivenLifecycle:
    """A lifecycle that is driven at given times, in milliseconds since START_MS."""

    def __init__(self, traits: QueueTraits | None = None, **limits: int) -> None:
        self.lifecycle = Lifecycle("test", traits, Limits(**limits))
        self.lifecycle.end_replay(START_MS)
        self.events: list[Event] = []

    def apply(self, advisory: Any, at: int) -> list[Event]:
        """Apply one advisory and return the resulting events."""
        found = self.lifecycle.apply(advisory, START_MS + at)
        self.events += found
        return found

    def flush(self, at: int) -> list[Event]:
        """Advance to `at` and return the resulting events."""
        found = self.lifecycle.flush(START_MS + at)
        self.events += found
        return found

    def lines(self) -> list[str]:
        """Return every message event so far, in order, one line each: type, receive count, consumer, time."""
        names = {A: "A", B: "B"}
        return [
            f"{event['type']} x{event.get('receive_count', 0)} {names.get(event.get('consumer', ''), '-')} "
            f"@{event['at'] - START_MS}"
            for event in self.events
            if "message_id" in event
        ]
