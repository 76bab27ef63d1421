"""Recorded events read from files and put in the order in which a live run would have taken them in.

An event belongs where its own time says, unless it came later than the lateness allows: then it takes effect only when it
came. "Came" is the newest time any event before it in its file had, one that the events after it belie left out (see
`arrival_times`). Several files are taken side by side, as several senders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.events.ahead import AHEAD_MS, hold_back
from streaming.core.events.packet import QUARANTINED_BYTES, Quarantined
from streaming.core.settings import QueueName
from streaming.core.state.queues import NEVER
from streaming.replay.content import name_of, read_content, refuse_binary
from streaming.replay.errors import ReplayError

Ints = npt.NDArray[np.int64]


class DecodedRecords(Protocol):
    """What a decoder of the wire format gives back."""

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
    """One event of a file that could not be read. `line` is None when the whole file could not."""

    file: str
    line: int | None
    reason: str
    detail: str
    raw: bytes
    came_at: int


@dataclass(frozen=True)
class Recording:
    """Events in the order they take effect, and what could not be read."""

    events: pa.Table
    takes_effect: Ints
    """Epoch milliseconds, ascending, one per event."""
    unreadable: list[Unreadable]
    ordered_queues: frozenset[QueueName]
    """Queues some event says keep order: replaying, this is known from the start."""

    @property
    def first_at(self) -> int | None:
        """The time of the first event, None when there is none."""
        return int(self.takes_effect[0]) if len(self.takes_effect) else None

    @property
    def last_at(self) -> int | None:
        """The time of the last event, None when there is none."""
        return int(self.takes_effect[-1]) if len(self.takes_effect) else None


def read_recording(paths: Sequence[Path], decode: Decoder, lateness_ms: int) -> Recording:
    """Read all files. Raises ReplayError for one that cannot be opened, or that can hold no event."""
    tables: list[pa.Table] = []
    came: list[Ints] = []
    unreadable: list[Unreadable] = []
    for path in paths:
        table, came_at, bad = _read_file(path, decode)
        tables.append(table)
        came.append(came_at)
        unreadable += bad
    if any(AHEAD_MS in table.column_names for table in tables):
        tables = [_with_ahead(table) for table in tables]
    events = pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
    came_at = np.concatenate(came) if came else np.zeros(0, dtype=np.int64)
    at = events["at"].to_numpy() if len(events) else np.zeros(0, dtype=np.int64)
    takes_effect = np.where(at < came_at - lateness_ms, came_at, at)
    order = np.argsort(takes_effect, kind="stable")
    return Recording(events.take(pa.array(order)), takes_effect[order], unreadable, _ordered_queues(events))


def _read_file(path: Path, decode: Decoder) -> tuple[pa.Table, Ints, list[Unreadable]]:
    content = read_content(path)
    # A file without a word is a recording in which nothing happened, not an event that cannot be read.
    decoded = decode([content] if content.strip() else [])
    order = np.argsort(decoded.line, kind="stable")
    events = decoded.events.take(pa.array(order))
    if decoded.invalid and not len(events):
        refuse_binary(path, content)
    at = events["at"].to_numpy() if len(events) else np.zeros(0, dtype=np.int64)
    came_at = arrival_times(at)
    # An event that is ahead of when it came is held back, as a live run does; smaller differences cannot be told.
    limit = np.where(at > came_at, came_at, NEVER)
    if (limit < NEVER).any():
        events = hold_back(events, limit, 0)
    lines = decoded.line[order]
    bad = []
    for one in sorted(_by_line(decoded.invalid, content, decode), key=lambda i: i.line or 0):
        before = int(np.searchsorted(lines, one.line, side="left")) if one.line is not None else 0
        when = int(came_at[max(before - 1, 0)]) if len(came_at) else 0
        bad.append(Unreadable(name_of(path), one.line, one.reason, one.detail, one.raw, when))
    return events, came_at, bad


def _with_ahead(table: pa.Table) -> pa.Table:
    if AHEAD_MS in table.column_names:
        return table
    return table.append_column(AHEAD_MS, pa.array(np.zeros(len(table), dtype=np.int64)))


JUMP_MS = 86_400_000
"""A recording may be quiet for so long: within it every time is believed."""
LONGEST_QUIET_MS = 366 * 86_400_000
"""At the end of a recording, where nothing follows that could say otherwise, so much is believed."""
FOLLOWERS = 100
"""So many of the next events are asked whether they come from the time to which one jumps."""


def arrival_times(at: Ints) -> Ints:
    """When each event of a file came, from the times of the events in the order of the file: the newest so far.

    A time that jumps ahead by more than a day is not believed when most of the events after it come from before that
    jump: one event dated 2096 would make all that follow it come in 2096.
    """
    newest = np.maximum.accumulate(at) if len(at) else at
    if not len(at) or (int(np.diff(newest).max(initial=0)) <= JUMP_MS and at[0] <= np.median(at[: FOLLOWERS + 1]) + JUMP_MS):
        return newest
    clock = int(at[0]) if _is_believed(at, 0, int(at[0])) else int(np.median(at[1 : FOLLOWERS + 1]))
    came = np.empty_like(at)
    for i, told in enumerate(at.tolist()):
        if told > clock and (told - clock <= JUMP_MS or _is_believed(at, i, clock)):
            clock = told
        came[i] = clock
    return came


def _is_believed(at: Ints, i: int, clock: int) -> bool:
    """Whether the events after event `i` bear out the time it jumps to."""
    following = at[i + 1 : i + 1 + FOLLOWERS]
    before = int((following < at[i] - JUMP_MS).sum())
    if not before:
        return bool(at[i] - clock <= LONGEST_QUIET_MS)
    return 2 * before <= len(following)


def _by_line(invalid: Sequence[Any], content: bytes, decode: Decoder) -> Sequence[Any]:
    """What could not be read, line by line: of a file that holds no event at all a decoder cannot tell whether it is one
    broken value or many, but a value written over lines is indented, and lines are not."""
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    if not any(one.line is None and one.reason == "not_json" for one in invalid):
        return invalid
    if all(line[:1] in b" \t}]" for _, line in lines[1:]):
        return invalid
    again = decode([line for _, line in lines]).invalid
    return [replace(one, line=lines[one.record][0]) for one in again]


def _ordered_queues(events: pa.Table) -> frozenset[QueueName]:
    if not len(events):
        return frozenset()
    said = pc.fill_null(events["ordered"], False)
    # A queue_state of kind fifo says it too; its attributes are JSON text.
    fifo = pc.fill_null(pc.match_substring_regex(events["attributes"], r'"kind"\s*:\s*"fifo"'), False)
    chosen = events.filter(pc.or_(said, fifo)).select(["system", "scope", "queue"])
    names = {QueueName(r["system"] or "", r["scope"] or "", r["queue"] or "") for r in chosen.to_pylist()}
    return frozenset(names)


MOST_STEPS = 5_000_000


def check_steps(recording: Recording, every_ms: int, until: int | None) -> None:
    """Raises ReplayError when the metrics would be printed more often than anybody can read: one event of a clock that is
    years ahead makes a recording of years."""
    first, last = recording.first_at, recording.last_at
    if first is None or last is None:
        return
    span_ms = (last if until is None else until) - first
    if span_ms // every_ms > MOST_STEPS:
        days = span_ms / 86_400_000
        raise ReplayError(
            f"the recording spans {days:,.0f} days, which is {span_ms // every_ms:,} steps: "
            "give a longer --every, or an --until before the events whose clock is ahead"
        )


@dataclass(frozen=True)
class Step:
    """The events between one time of judging and the next. `shown` steps print metrics."""

    at: int
    events: pa.Table
    invalid: Counter[str]
    quarantine: list[Quarantined]
    shown: bool


def steps(recording: Recording, every_ms: int, until: int | None) -> Iterator[Step]:
    """Every time at which a replay judges, in order: a fine grid from the first event on, all shown steps, and the end.

    A recording of which nothing can be read has no times of its own: what is wrong with it is told once, as of `until` or 0.
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
    taken = start = 0
    for at, stop, show in zip(times.tolist(), bounds.tolist(), shown.tolist(), strict=True):
        mine = []
        while taken < len(bad) and bad[taken].came_at <= at:
            mine.append(bad[taken])
            taken += 1
        yield _step(at, recording.events.slice(start, stop - start), mine, shown=show)
        start = stop


def _step(at: int, events: pa.Table, unreadable: Sequence[Unreadable], *, shown: bool) -> Step:
    quarantine = [Quarantined(u.reason, u.detail, u.raw[:QUARANTINED_BYTES], u.file, u.line) for u in unreadable]
    return Step(at, events, Counter(u.reason for u in unreadable), quarantine, shown)


GRID_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
MOST_FINE_TIMES = 3_000
MOST_EXACT_TIMES = 2_000
"""A recording with no more different event times than this is also judged at each of them."""
QUIET_FOLLOWED_MS = 1_000_000
"""Longer after an event than every threshold of minutes: until then a signal may still be due with no event."""


def _fine_times(recording: Recording, every_ms: int, end: int) -> Ints:
    """Times where something can happen: those of the events where they are few, and a grid from the first event on, as fine
    as the recording's length allows.

    Right after events, and for a quarter of an hour of quiet after them; a longer quiet is judged at the shown steps only.
    """
    first = int(recording.takes_effect[0])
    at = np.unique(recording.takes_effect[recording.takes_effect <= end])
    exact = at if len(at) <= MOST_EXACT_TIMES else at[:0]
    return np.concatenate([exact, _grid_times(at - first, first, every_ms, end)])


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
