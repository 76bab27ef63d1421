"""Transports for tests: one keeps what it gets, one is broken in a chosen way."""

from __future__ import annotations

import json
import threading
from typing import Any

from queuewatch import SendError, Transport


class Kept(Transport):
    """Keeps every payload."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.name = "kept"
        self.max_bytes = max_bytes
        self.payloads: list[bytes] = []
        self.closed = 0

    def send(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def close(self) -> None:
        self.closed += 1

    def events(self) -> list[dict[str, Any]]:
        """Return everything sent so far, in order."""
        return [json.loads(line) for payload in self.payloads for line in payload.splitlines()]


class Broken(Kept):
    """Fails while `error` is set; blocks while `gate` is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.gate = threading.Event()
        self.gate.set()
        self.attempts = 0

    def send(self, payload: bytes) -> None:
        self.attempts += 1
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        super().send(payload)


def later(message: str = "the other side is down") -> SendError:
    """Build an error after which the sender retries."""
    return SendError(message, retry=True)
