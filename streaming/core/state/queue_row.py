"""One queue of a queue table, as an object for code that looks at single queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streaming.core.columns import Array
from streaming.core.settings import QueueName
from streaming.core.state.queues import (
    NEVER,
    Attribute,
    Depth,
    Reported,
    TimeoutChange,
    is_later,
    keep_latest,
    latest_number,
    latest_value,
    without_excess,
)
from streaming.core.state.timeouts import VISIBILITY_TIMEOUT, learn_timeout

if TYPE_CHECKING:
    from streaming.core.state.queue_table import QueueTable


class _Integer:
    """An integer field of one queue, read from and written to its column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __get__(self, row: QueueRow, owner: type[QueueRow] | None = None) -> int:
        return int(row.table.column(self.column)[row.place])

    def __set__(self, row: QueueRow, value: int) -> None:
        row.table.column(self.column)[row.place] = value


class _Flag:
    """A boolean field of one queue, read from and written to its column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __get__(self, row: QueueRow, owner: type[QueueRow] | None = None) -> bool:
        return bool(row.table.column(self.column)[row.place])

    def __set__(self, row: QueueRow, value: bool) -> None:
        row.table.column(self.column)[row.place] = value


class QueueRow:
    """One queue of the table. Times are epoch milliseconds, 0 for never."""

    __slots__ = ("place", "table")

    ordered, dead_letter, messages_seen = _Flag("ordered"), _Flag("dead_letter"), _Flag("messages_seen")
    dead_letter_reported, dead_letter_apparent = _Flag("dead_letter_reported"), _Flag("dead_letter_apparent")
    redrive_target = _Flag("redrive_target")
    empty_from = _Integer("empty_from")
    """Since when the broker's counts have been empty, as of the oldest of `depths` (0: they were not)."""
    purged_at = _Integer("purged_at")
    last_event_at, last_received_at = _Integer("last_event_at"), _Integer("last_received_at")
    last_settled_at, last_state_at = _Integer("last_settled_at"), _Integer("last_state_at")
    skew_ms = _Integer("skew_ms")
    youngest_sent_at = _Integer("youngest_sent_at")
    """When the youngest message received so far was sent…"""
    youngest_received_at = _Integer("youngest_received_at")
    """…and when it was last received."""
    left_out_at = _Integer("left_out_at")

    def __init__(self, table: QueueTable, place: int) -> None:
        self.table, self.place = table, place

    @property
    def name(self) -> QueueName:
        return self.table.names[self.place]

    @property
    def attributes(self) -> dict[str, Reported]:
        """The latest report of each attribute. Read-only: use `learn` to change it."""
        return self.table.attributes(self.place)

    @property
    def depths(self) -> list[Depth]:
        """Recent counts by the broker, oldest first."""
        return self.table.depths(self.place)

    @property
    def timeout(self) -> TimeoutChange:
        """When its visibility timeout changed."""
        return self.table.timeout(self.place)

    @property
    def totals(self) -> Array:
        """Running totals by index of TOTALS; writing to this array changes them."""
        totals: Array = self.table.totals[self.place]
        return totals

    def attribute(self, name: Attribute) -> Any:
        """Return the latest value of an attribute, or None when it was never reported."""
        return latest_value(self.attributes, name)

    def number(self, name: Attribute) -> float | None:
        """Return the latest value of a numeric attribute."""
        return latest_number(self.attributes, name)

    def learn(self, at: int, attributes: dict[str, Any], earlier: Sequence[int] = ()) -> None:
        """Apply the attributes of a queue_state of time `at`. `earlier`: when the same was reported before, ascending."""
        if VISIBILITY_TIMEOUT in attributes:
            self._learn_timeout([Reported(time, attributes[VISIBILITY_TIMEOUT]) for time in (*earlier, at)])
        known = dict(self.attributes)
        keep_latest(known, {name: Reported(at, value) for name, value in attributes.items()})
        self.last_state_at = max(self.last_state_at, at)
        self.table.put_attributes(self.place, without_excess(known))

    def report_dead_letters(self) -> None:
        """Note that the queue is known to be a dead-letter queue, whatever its messages show."""
        self.dead_letter_reported = self.dead_letter = True

    def deny_order(self) -> None:
        """Note that the queue keeps no order, as an attribute of the earliest time, so that no order of arrival matters."""
        if "ordered" not in self.attributes:
            self.table.put_attributes(self.place, {**self.attributes, "ordered": Reported(1, False)})

    def _learn_timeout(self, reports: Sequence[Reported]) -> None:
        before = change = self.timeout
        known = self.attributes.get(VISIBILITY_TIMEOUT)
        for reported in reports:
            change = learn_timeout(change, known, reported, self._next_count)
            known = reported if known is None or is_later(reported, known) else known
        if change != before:
            self.table.put_timeout(self.place, change)

    def _next_count(self, after: int) -> int:
        return min((depth.at for depth in self.depths if depth.at > after), default=NEVER)
