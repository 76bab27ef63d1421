"""The events each client would have reported to queuewatch if it had been instrumented."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Event = dict[str, Any]
"""A wire-format event."""

Role = Literal["producer", "consumer", "operator", "collector"]


class Report(NamedTuple):
    """One event, its reporter, and the message it is about."""

    role: Role
    client: str
    message_id: str | None
    event: Event


System = Literal["aws_sqs", "activemq", "cloudflare_queues"]

SCOPES: dict[System, str] = {
    "aws_sqs": "000000000000/eu-west-1",
    "activemq": "broker-1",
    "cloudflare_queues": "0123456789abcdef",
}
"""The account or broker of every simulation."""


def event(kind: str, at: int, queue: str, system: System = "aws_sqs", **fields: Any) -> Event:
    """Build a wire event of a queue; fields without a value are left out."""
    found: Event = {"v": 1, "type": kind, "at": at, "system": system, "scope": SCOPES[system], "queue": queue}
    found.update((name, value) for name, value in fields.items() if value is not None)
    return found
