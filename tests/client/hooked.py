"""What the tests of a watched client share: a queue of their own, and the events reported so far."""

from __future__ import annotations

import uuid
from typing import Any

from queuewatch import Watch
from tests.client.transports import Kept


def new_queue(client: Any, suffix: str = "", **attributes: str) -> str:
    """Create a queue with a name that no other test uses, and return its URL."""
    made = client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:10]}{suffix}", Attributes=attributes)
    return str(made["QueueUrl"])


def reported(watching: Watch, kept: Kept, *fields: str) -> list[tuple[Any, ...]]:
    """Return the chosen fields of every event so far."""
    assert watching.flush()
    return [tuple(event.get(name) for name in fields) for event in kept.events()]
