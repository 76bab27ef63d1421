"""The interface of a transport, the last step of telemetry out of a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

SENDER_THREAD: Final = "queuewatch-sender"
"""The name of the thread that sends an application's telemetry."""


class SendError(Exception):
    """A payload was not delivered.

    `retry` says whether the same payload may succeed later, `too_large` whether half of it may succeed, `unreadable` whether the
    service says that it can read none of the events, and `retry_after_s` how long the destination asks to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        retry: bool,
        too_large: bool = False,
        unreadable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retry = retry
        self.too_large = too_large
        self.unreadable = unreadable
        self.retry_after_s = retry_after_s


class Transport(ABC):
    """Sends payloads of NDJSON. Used by one thread at a time; opens its connection at the first `send`."""

    name: str
    """A readable name of the destination, never with a secret."""

    max_bytes: int
    """The maximum size of a payload."""

    def prepare(self) -> None:
        """Import what `send` needs, without connecting. Called in the application's thread.

        An import in the sender's thread would hold that module's import lock, and a process forked at that moment would wait for
        it forever.
        """
        return

    @abstractmethod
    def send(self, payload: bytes) -> None:
        """Deliver one payload; when this returns, the destination has received it. Raises only `SendError`."""

    def flush(self) -> None:
        """Make sent payloads visible to readers, for transports that collect payloads. Raises `SendError`."""
        return

    def due_s(self) -> float | None:
        """Return the seconds until `flush` should be called, or None if nothing waits for it."""
        return None

    def close(self) -> None:
        """Close connections and files; never raises. A later `send` opens them again."""
        return

    def after_fork(self) -> None:
        """Forget the parent's connections and files without touching them, in a forked child."""
        return
