"""Parse values as SQS writes them: every attribute is a string."""

from __future__ import annotations

import json
from typing import Any


def queue_name(url: str) -> str:
    """Return the last part of a queue URL; a name is its own last part."""
    return url.rstrip("/").rsplit("/", 1)[-1]


def to_number(text: object) -> int | None:
    """Parse an integer, None if it is not one. Some stand-ins write a fraction, or a number instead of text."""
    try:
        return int(float(str(text)))
    except (ValueError, OverflowError):
        return None


def to_policy(text: str | None) -> dict[str, Any]:
    """Parse a policy, which SQS writes as JSON; empty if it is invalid."""
    try:
        policy = json.loads(text) if text else {}
    except ValueError:
        return {}
    return policy if isinstance(policy, dict) else {}
