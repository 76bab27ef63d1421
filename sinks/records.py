"""Records for files and topics: one line with a key that identifies copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """A line of JSON without its newline. A record has the same key however often its batch runs."""

    key: str
    line: str


class Destination(Protocol):
    """A destination of records."""

    def append(self, records: Sequence[Record], batch_id: int) -> None:
        """Store the records of one batch durably before returning; storing the same batch again changes nothing.

        Raises `Undelivered`, and is then called again with the same.
        """

    def close(self) -> None:
        """Close files and connections."""


class Undelivered(OSError):
    """A destination did not accept the records; the message names it and the fix."""
