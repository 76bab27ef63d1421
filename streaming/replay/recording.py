"""Read recorded events from files, in the order in which a live run would have processed them.

An event takes effect at its own time, unless it arrived later than the lateness allows: then it takes effect on arrival. The
arrival time is the newest time of any earlier event in the file, ignoring times that later events contradict (see
`arrival_times`). Several files are merged by time, like several senders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.events.ahead import AHEAD_MS, MOVED_BACK_MS, clamp_future_times
from streaming.core.events.attributes import read_attributes
from streaming.core.events.late import MARKED_LATE
from streaming.core.events.packet import QUARANTINED_BYTES, Quarantined
from streaming.core.settings import QueueName, Settings
from streaming.replay.content import name_of, read_content, records_by_line, refuse_binary
from streaming.replay.errors import ReplayError

Ints = npt.NDArray[np.int64]


class DecodedRecords(Protocol):
    """The result of a wire format decoder."""

    @property
    def events(self) -> pa.Table: ...
    @property
    def invalid(self) -> Sequence[Any]: ...
    @property
    def record_index(self) -> npt.NDArray[np.int32]: ...
    @property
    def line(self) -> npt.NDArray[np.int32]: ...


Decoder = Callable[[Sequence[bytes]], DecodedRecords]


@dataclass(frozen=True)
class Unreadable:
    """An unreadable event of a file. `line` is None if the whole file is unreadable."""

    file: str
    line: int | None
    reason: str
    detail: str
    raw: bytes
    came_at: int


@dataclass(frozen=True)
class Recording:
    """Events in the order in which they take effect, and unreadable events."""

    events: pa.Table
    takes_effect: Ints
    """Epoch milliseconds, ascending, one per event."""
    unreadable: list[Unreadable]
    late: Mapping[str, tuple[int, int]]
    """File -> its events that came later than the lateness allows, and all of its events."""
    ordered_queues: frozenset[QueueName]
    """Queues that some event marks as ordered; in a replay this is known from the start."""

    @property
    def first_at(self) -> int | None:
        """The time of the first event, or None."""
        return int(self.takes_effect[0]) if len(self.takes_effect) else None

    @property
    def last_at(self) -> int | None:
        """The time of the last event, or None."""
        return int(self.takes_effect[-1]) if len(self.takes_effect) else None


def read_recording(paths: Sequence[Path], decode: Decoder, settings: Settings) -> Recording:
    """Read all files. Raises ReplayError for a file that cannot be opened or cannot contain events."""
    tables: list[pa.Table] = []
    came: list[Ints] = []
    unreadable: list[Unreadable] = []
    late: dict[str, tuple[int, int]] = {}
    lateness_ms = settings.lateness_ms
    for path in paths:
        table, came_at, bad = _read_file(path, decode, settings)
        tables.append(table)
        came.append(came_at)
        unreadable += bad
        if len(table):
            late[name_of(path)] = int((table["at"].to_numpy() < came_at - lateness_ms).sum()), len(table)
    if any(AHEAD_MS in table.column_names for table in tables):
        tables = [_with_ahead(table) for table in tables]
    events = pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
    came_at = np.concatenate(came) if came else np.zeros(0, dtype=np.int64)
    at = events["at"].to_numpy() if len(events) else np.zeros(0, dtype=np.int64)
    is_late = at < came_at - lateness_ms
    if is_late.any():
        events = events.append_column(MARKED_LATE, pa.array(is_late))
    takes_effect = np.where(is_late, came_at, at)
    order = np.argsort(takes_effect, kind="stable")
    return Recording(events.take(pa.array(order)), takes_effect[order], unreadable, late, _ordered_queues(events))


def _read_file(path: Path, decode: Decoder, settings: Settings) -> tuple[pa.Table, Ints, list[Unreadable]]:
    content = read_content(path)
    by_line = records_by_line(content)
    if by_line is None:
        # An empty file is a recording without events, not an unreadable event.
        decoded = decode([content] if content.strip() else [])
        invalid, line = _by_line(decoded.invalid, content, decode), decoded.line
    else:
        numbers = np.array(list(by_line), dtype=np.int32)
        decoded = decode(list(by_line.values()))
        invalid = [replace(one, line=int(numbers[one.record])) for one in decoded.invalid]
        line = numbers[decoded.record_index]
    order = np.lexsort((decoded.line, line))
    events = decoded.events.take(pa.array(order))
    if decoded.invalid and not len(events):
        refuse_binary(path, content)
    at = events["at"].to_numpy() if len(events) else np.zeros(0, dtype=np.int64)
    came_at = arrival_times(at, settings.lateness_ms)
    # Times after an event's arrival are clamped, as in a live run. One whose own time is not believed is certainly ahead.
    events = clamp_future_times(events, came_at, np.where(at > came_at, 0, settings.skew_allowance_ms))
    lines = line[order]
    bad = []
    for one in sorted(invalid, key=lambda i: i.line or 0):
        before = int(np.searchsorted(lines, one.line, side="left")) if one.line is not None else 0
        when = int(came_at[max(before - 1, 0)]) if len(came_at) else 0
        bad.append(Unreadable(file=name_of(path), line=one.line, reason=one.reason, detail=one.detail, raw=one.raw, came_at=when))
    return events, came_at, bad


def _with_ahead(table: pa.Table) -> pa.Table:
    if AHEAD_MS in table.column_names:
        return table
    nothing = pa.array(np.zeros(len(table), dtype=np.int64))
    return table.append_column(AHEAD_MS, nothing).append_column(MOVED_BACK_MS, nothing)


LONGEST_QUIET_MS = 366 * 86_400_000
"""At the end of a recording, where few events follow that could contradict it, a longer jump is not believed."""
FOLLOWERS = (20, 100)
"""A jump is confirmed if most of this many following events are from after it: of the next ones, whose sender may be one whose
clock is ahead, and of more."""
FEWEST_LATER = 2
"""The first event of a file is taken for one of a stale clock if at least this many follow, and most are over a year later."""
DAY_MS = 86_400_000
FEWEST_AGAINST = 5
"""A jump of up to a day is a quiet time followed by a few late events, unless at least this many events contradict it."""


def arrival_times(at: Ints, lateness_ms: int) -> Ints:
    """Return the arrival time of each event of a file: the newest event time so far, in file order.

    A jump ahead by more than the lateness, which events in any order may explain, is not believed if most of the following events
    are from before it: they would all be late because of one sender whose clock is ahead.
    """
    newest = np.maximum.accumulate(at) if len(at) else at
    if not len(at) or (
        int(np.diff(newest).max(initial=0)) <= lateness_ms and at[0] <= np.median(at[: FOLLOWERS[0] + 1]) + lateness_ms
    ):
        return newest
    clock = _start(at, lateness_ms)
    came = np.empty_like(at)
    for i, event_at in enumerate(at.tolist()):
        if event_at > clock and (event_at - clock <= lateness_ms or _is_believed(at, i, clock, lateness_ms)):
            clock = event_at
        came[i] = clock
    return came


def _start(at: Ints, lateness_ms: int) -> int:
    """Return the time at which a file begins: that of its first event whose sender's clock is neither ahead nor far behind."""
    for i in range(min(len(at), FOLLOWERS[0])):
        usual = int(np.median(at[i + 1 : i + 1 + FOLLOWERS[0]])) if i + 1 < len(at) else int(at[i])
        if _is_believed(at, i, usual, lateness_ms) and not _is_far_behind(at, i):
            return int(at[i])
    return int(np.median(at[1 : FOLLOWERS[0] + 1]))


def _is_far_behind(at: Ints, i: int) -> bool:
    """Return whether the events after event `i` show that it is not the first one of a recording, but older."""
    after = at[i + 1 : i + 1 + FOLLOWERS[-1]] > at[i] + LONGEST_QUIET_MS
    return len(after) >= FEWEST_LATER and all(2 * int(after[:count].sum()) > len(after[:count]) for count in FOLLOWERS)


def _is_believed(at: Ints, i: int, clock: int, lateness_ms: int) -> bool:
    """Return whether the events after event `i` confirm the time it jumps to."""
    before = at[i + 1 : i + 1 + FOLLOWERS[-1]] < at[i] - lateness_ms
    jump_ms = int(at[i]) - clock
    if jump_ms > LONGEST_QUIET_MS and len(before) < FOLLOWERS[0]:
        return False
    if not before.any() or (jump_ms <= DAY_MS and before.sum() < FEWEST_AGAINST):
        return True
    return all(2 * int(before[:count].sum()) <= len(before[:count]) for count in FOLLOWERS)


def _by_line(invalid: Sequence[Any], content: bytes, decode: Decoder) -> Sequence[Any]:
    """Return the unreadable events line by line.

    For a file without any readable event, a decoder cannot tell whether it is one broken value or many lines. A value
    written over several lines is indented, while separate lines are not.
    """
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    if not any(one.line is None and one.reason == "not_json" for one in invalid):
        return invalid
    if all(line[:1] in b" \t}]" for _, line in lines[1:]):
        return invalid
    again = decode([line for _, line in lines]).invalid
    return [replace(one, line=lines[one.record][0]) for one in again]


_QUEUE = ["system", "scope", "queue"]


def _ordered_queues(events: pa.Table) -> frozenset[QueueName]:
    if not len(events):
        return frozenset()
    said = pc.fill_null(events["ordered"], False)
    names = {_queue_of(row) for row in events.filter(said).select(_QUEUE).to_pylist()}
    # A queue_state of kind fifo also means ordered. Its attributes are JSON text, in which a tag may say the same.
    likely = pc.fill_null(pc.match_substring_regex(events["attributes"], r'"kind"\s*:\s*"fifo"'), False)
    reports = events.filter(pc.and_(likely, pc.equal(events["type"], "queue_state")))
    for row in reports.select([*_QUEUE, "attributes"]).to_pylist():
        name = _queue_of(row)
        if name not in names and read_attributes(row["attributes"]).get("kind") == "fifo":
            names.add(name)
    return frozenset(names)


def _queue_of(row: dict[str, Any]) -> QueueName:
    return QueueName(row["system"] or "", row["scope"] or "", row["queue"] or "")


MOST_STEPS = 5_000_000


def check_steps(recording: Recording, every_ms: int, until: int | None) -> None:
    """Raise ReplayError if there would be too many steps to print.

    Events from a clock that is years ahead or behind make the recording span years.
    """
    first, last = recording.first_at, recording.last_at
    if first is None or last is None:
        return
    span_ms = (last if until is None else until) - first
    if span_ms // every_ms > MOST_STEPS:
        days = span_ms / 86_400_000
        raise ReplayError(
            f"the recording spans {days:,.0f} days, which is {span_ms // every_ms:,} steps: "
            "give a longer --every, an --until before the events whose clock is ahead, or a file without those whose clock is "
            "behind"
        )


@dataclass(frozen=True)
class Step:
    """The events between two judging times. `shown` steps print metrics."""

    at: int
    events: pa.Table
    invalid: Counter[str]
    quarantine: list[Quarantined]
    shown: bool


def steps(recording: Recording, every_ms: int, until: int | None) -> Iterator[Step]:
    """Return all steps of a replay, in order: a fine grid from the first event on, all shown steps, and the end.

    A recording without readable events has no times: its errors are reported once, at `until` or 0.
    """
    first, last = recording.first_at, recording.last_at
    if first is None or last is None:
        if recording.unreadable:
            yield _step(until or 0, recording.events, recording.unreadable, shown=True)
        return
    end = last if until is None else until
    if end < first:
        return
    fine = _fine_times(recording, every_ms, end)
    times = np.unique(np.concatenate([np.arange(first + every_ms, end + 1, every_ms, dtype=np.int64), [end], fine]))
    shown = ((times - first) % every_ms == 0) & (times > first) | (times == end)
    bounds = np.searchsorted(recording.takes_effect, times, side="right")
    bad = sorted(recording.unreadable, key=lambda u: u.came_at)
    # In most steps there is none, and Arrow takes as long to select nothing as to select events.
    nothing = recording.events.slice(0, 0)
    taken = start = 0
    for at, stop, show in zip(times.tolist(), bounds.tolist(), shown.tolist(), strict=True):
        mine = []
        while taken < len(bad) and bad[taken].came_at <= at:
            mine.append(bad[taken])
            taken += 1
        events = recording.events.slice(start, stop - start) if stop > start else nothing
        yield _step(at, events, mine, shown=show)
        start = stop


def _step(at: int, events: pa.Table, unreadable: Sequence[Unreadable], *, shown: bool) -> Step:
    quarantine = [
        Quarantined(reason=u.reason, detail=u.detail, raw=u.raw[:QUARANTINED_BYTES], origin=u.file, line=u.line)
        for u in unreadable
    ]
    return Step(at=at, events=events, invalid=Counter(u.reason for u in unreadable), quarantine=quarantine, shown=shown)


GRID_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
MOST_FINE_TIMES = 3_000
MOST_EXACT_TIMES = 2_000
"""A recording with at most this many distinct event times is also judged at each of them."""
QUIET_FOLLOWED_MS = 1_000_000
"""The time after an event in which most signals become due without another event; longer than every default in minutes."""
LONGER_QUIET_MS = ((60_000, 3_600_000), (300_000, 43_200_000), (3_600_000, 15 * 86_400_000))
"""Some become due later, with a long visibility timeout or retention: at these distances, for so long after an event."""


def _fine_times(recording: Recording, every_ms: int, end: int) -> Ints:
    """Return the times at which something can change.

    These are the event times, if there are few, and a grid from the first event on, as fine as the recording's length allows.

    The grid covers events and a quarter of an hour of quiet after them. During longer quiet the times are farther apart.
    """
    first = int(recording.takes_effect[0])
    at = np.unique(recording.takes_effect[recording.takes_effect <= end])
    exact = at if len(at) <= MOST_EXACT_TIMES else at[:0]
    times = np.concatenate([exact, _grid_times(at - first, first, every_ms, end)])
    for apart_ms, for_ms in LONGER_QUIET_MS:
        if apart_ms < every_ms:
            more = np.unique(np.concatenate([times, _quiet_times(at - first, first, apart_ms, for_ms, end)]))
            times = more if len(more) <= MOST_FINE_TIMES else times
    return times


def _quiet_times(events: Ints, first: int, apart_ms: int, for_ms: int, end: int) -> Ints:
    """Return times `apart_ms` apart for `for_ms` after each event, at most MOST_FINE_TIMES and one."""
    cells = np.unique(-(-events // apart_ms))
    gaps = np.minimum(np.diff(np.append(cells, -(-(end - first) // apart_ms) + 1)), for_ms // apart_ms + 1)
    upto = int(np.searchsorted(np.cumsum(gaps), MOST_FINE_TIMES)) + 1
    offsets = [np.arange(c, c + g) for c, g in zip(cells[:upto].tolist(), gaps[:upto].tolist(), strict=True)]
    times = first + np.concatenate(offsets)[: MOST_FINE_TIMES + 1] * apart_ms
    return times[times <= end]


def _grid_times(events: Ints, first: int, every_ms: int, end: int) -> Ints:
    for grid in GRID_MS:
        if grid >= every_ms and grid != GRID_MS[0]:
            break
        cells = np.unique(-(-events // grid))
        gaps = np.minimum(np.diff(np.append(cells, -(-(end - first) // grid))), QUIET_FOLLOWED_MS // grid)
        if len(cells) + int(gaps.sum()) <= MOST_FINE_TIMES or grid == GRID_MS[-1]:
            offsets = np.concatenate([np.arange(c, c + max(g, 1)) for c, g in zip(cells.tolist(), gaps.tolist(), strict=True)])
            times = first + np.unique(offsets) * grid
            return times[times <= end]
    return np.zeros(0, dtype=np.int64)
