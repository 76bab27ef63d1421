"""What a transport is: the last step of telemetry out of a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

SENDER_THREAD: Final = "queuewatch-sender"
"""The name of the thread that uses an application's transport."""


class SendError(Exception):
    """A payload did not arrive.

    `retry` says whether the same payload may succeed later, `too_large` whether half of it may, `retry_after_s`
    how long the other side asks to wait.
    """

    def __init__(self, message: str, *, retry: bool, too_large: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.too_large = too_large
        self.retry_after_s = retry_after_s


class Transport(ABC):
    """Sends payloads of NDJSON. Used by one thread at a time; opens its connection at the first `send`."""

    name: str
    """Where it sends to, for people; never a secret."""

    max_bytes: int
    """The largest payload it takes."""

    def prepare(self) -> None:
        """Import what `send` needs, and connect to nothing. Called in the application's thread.

        An import in the sender's thread would hold that module's import lock: a process forked meanwhile waits for it
        for ever.
        """
        return

    @abstractmethod
    def send(self, payload: bytes) -> None:
        """Hand over one payload; when it returns, the other side has it. Raises `SendError` and nothing else."""

    def flush(self) -> None:
        """Make what was sent visible to readers, for transports that gather payloads. Raises `SendError`."""
        return

    def due_s(self) -> float | None:
        """Seconds until `flush` should be called, None when nothing waits for it."""
        return None

    def close(self) -> None:
        """Let go of connections and files; never raises. A later `send` opens them again."""
        return

    def after_fork(self) -> None:
        """In the child of a fork: forget the parent's connections and files without touching them."""
        return
