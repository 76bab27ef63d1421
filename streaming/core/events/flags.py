"""Flags of an event: of a row about a message, and of an event about a queue, a consumer or a collector."""

from __future__ import annotations

PRIMARY = 1
"""It counts as the event: rows derived from it do not, nor do the copies that other shards get."""
BY_RECEIVE = 2
"""Of a row: the move was inferred from a first receive from the dead-letter queue."""
AHEAD = 4
"""It was dated in the future; its time is its time of arrival."""
LATE = 8
"""It was marked as late: see `late`."""
COUNTED = 16
"""Of an event about a queue: its attributes hold the broker's counts of visible and in-flight messages."""
SAME_ID = 32
"""Of a row: a redriven message came back under the id that it had before."""
