"""What goes to a file or a topic: one line with a key that tells copies apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """One line of JSON, without its newline. The same record has the same key however often its batch runs."""

    key: str
    line: str


class Destination(Protocol):
    """Where records go."""

    def append(self, records: Sequence[Record], batch_id: int) -> None:
        """Keep the records of one batch durably before returning; the same batch again leaves what one run leaves.

        Raises `Undelivered`, and is then called again with the same.
        """

    def close(self) -> None:
        """Let go of files and connections."""


class Undelivered(OSError):
    """A destination did not take what it was given; the message names it and the fix."""
