"""A message that fails, for the signals about it and its dead letter."""

from __future__ import annotations

from typing import Any

from tests.contract.replaying import ev

STANDARD: dict[str, Any] = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "q-dlq"}


def failing(receives: int, every_s: int = 40, message_id: str = "bad", **state: Any) -> list[dict[str, Any]]:
    """Return a message that is received again and again and never deleted."""
    events = [ev("queue_state", 0, attributes=STANDARD | state), ev("sent", 0, message_id=message_id)]
    return events + [ev("received", 10 + n * every_s, message_id=message_id, receive_count=n + 1) for n in range(receives)]
