"""What never changes about a message, apart from the rest of a state: its id, its queue, and when it was sent.

An id is sixteen random bytes that hardly compress, its queue and time take three more, and everything else about a waiting
message less than one. A state is written with each batch, so these are written once, in immutable segments that are named by
their content, and the state records which rows have theirs there. Segments of which much is gone are written again without that.

The rows of a segment are sorted by key, and a key depends on the id and the queue in a way that can be reversed. So a segment has
the distances between keys, which take two bytes less than the half of the id that follows from them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from streaming.core.columns import Array, Buffer, nonzero, pack_columns, unpack_columns
from streaming.core.state.rows import ROW_COLUMNS, Rows, keys_of, lows_of

MOST_SEGMENTS: Final = 24
"""With more segments than this, all but the largest are merged. Messages mostly leave in the order in which they came, so a
segment that is not merged is soon gone as a whole, and nothing of it is written twice."""
IN_HEAD_SHARE: Final = 32
"""New ids are written with the head while they are fewer than the rows divided by this."""
LASTING: Final = ("queue", "sent")
"""The columns beside the ids. The head has, for each row, the bits in which it differs from the segment's: nearly always none."""

_SEGMENT, _ALIVE = "id.segment", "id.alive"
_LOW_BITS: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class IdSegment:
    """Ids that were written together, in the order of their rows."""

    name: str
    rows: int
    body: Buffer
    is_ids_alone: bool
    """Whether the body is all of `hi` and then all of `lo`, eight bytes each: in states before version 9, and where a key is not
    that of its id and queue. Else it is packed columns."""
    lasting: Mapping[str, Array]
    """Columns of `LASTING`, those of only zeros left out."""

    @classmethod
    def of(cls, rows: Rows, queue_hashes: Array) -> IdSegment:
        """Return the segment of some rows. `queue_hashes`: by queue number."""
        hi, lo = rows["hi"], rows["lo"]
        if not np.array_equal(lows_of(hi, rows.key, queue_hashes[rows["queue"]], rows["flags"]), lo):
            body = hi.tobytes() + lo.tobytes()
            return cls(_name(body), len(rows), body, True, {})
        steps = np.diff(rows.key, prepend=np.uint64(0))
        columns = {"hi": hi, "low": steps.astype(np.uint32), "high": (steps >> _LOW_BITS).astype(np.uint32)}
        lasting = {name: values for name in LASTING if (values := rows.columns[name]) is not None}
        body = pack_columns(columns | lasting, {}, raw=frozenset({"hi", "low"}), compress=True)
        return cls(_name(body), len(rows), body, False, lasting)

    @classmethod
    def read(cls, name: str, rows: int, is_ids_alone: bool, body: Buffer) -> tuple[IdSegment, Array, Array]:
        """Return a segment, `hi` of its ids, and `lo` if it has the ids alone, else the keys of its rows.

        Raises `ValueError` when the body has another length.
        """
        if is_ids_alone:
            hi, lo = np.frombuffer(body, dtype=np.uint64).reshape(2, rows)
            return cls(name, rows, body, True, {}), hi, lo
        columns, _ = unpack_columns(body)
        if any(len(values) != rows for values in columns.values()):
            raise ValueError("a segment of ids has another number of rows")
        keys = np.cumsum(columns["high"].astype(np.uint64) << _LOW_BITS | columns["low"])
        return cls(name, rows, body, False, {name: columns[name] for name in LASTING if name in columns}), columns["hi"], keys


class Placed(NamedTuple):
    """Where the ids of a state's rows are."""

    segments: list[IdSegment]
    columns: dict[str, Array]
    """For the head: the segment of each row, which ids of the segments still have a row, the ids that are in no segment, and how
    the columns of `LASTING` differ from those of the segments."""


def place_ids(rows: Rows, segments: Sequence[IdSegment], apart_from: int | None, queue_hashes: Array) -> Placed:
    """Return where the ids of `rows` are to be; those in `segments` (see `Rows`' `id_at`) stay there unless much of one is gone.

    With fewer rows than `apart_from`, or None, all are in the head. `queue_hashes`: by queue number.
    """
    if apart_from is None or len(rows) < apart_from:
        return Placed([], {name: column for name in ("hi", "lo", *LASTING) if (column := rows.columns[name]) is not None})
    id_at = rows["id_at"]
    is_new = id_at < 0
    alive = np.zeros(sum(segment.rows for segment in segments), dtype=bool)
    alive[id_at[~is_new]] = True
    starts = np.cumsum([0, *(segment.rows for segment in segments)])
    left = [int(np.count_nonzero(alive[start:stop])) for start, stop in itertools.pairwise(starts)]
    kept = _kept([segment.rows for segment in segments], left)
    # The new number of each segment, from 1; 0 is the head, and the last entry stands for new ids.
    fresh = len(kept) + 1
    number_of = np.full(len(segments) + 1, fresh, dtype=np.uint8)
    number_of[kept] = np.arange(1, fresh)
    is_rewritten = len(kept) < sum(map(bool, left))
    if not is_rewritten and np.count_nonzero(is_new) * IN_HEAD_SHARE < len(rows):
        number_of[-1] = 0
    old = np.append(np.repeat(np.arange(len(segments), dtype=np.uint8), np.diff(starts)), np.uint8(len(segments)))
    number = number_of[old[id_at]]
    columns: dict[str, Array] = {_SEGMENT: number}
    made = [segments[i] for i in kept]
    bits = [alive[starts[i] : starts[i + 1]] for i in kept]
    together = nonzero(number == fresh)
    if len(together):
        made.append(IdSegment.of(rows.some(together), queue_hashes))
        bits.append(np.ones(len(together), dtype=bool))
    in_head = nonzero(number == 0)
    columns |= {_ALIVE: np.packbits(np.concatenate([alive[:0], *bits])), "hi": rows["hi"][in_head], "lo": rows["lo"][in_head]}
    for name in LASTING:
        stored = _in_segments(name, segments)[id_at]
        if len(together):
            stored[together] = made[-1].lasting.get(name, 0)
        columns[name] = rows[name] ^ stored
    return Placed(made, columns)


def _name(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _in_segments(name: str, segments: Sequence[IdSegment]) -> Array:
    """Return a column of `LASTING` of all segments, and at its end the zero of rows that are in none."""
    dtype = ROW_COLUMNS[name][0]
    parts = [segment.lasting.get(name, np.zeros(segment.rows, dtype=dtype)) for segment in segments]
    return np.concatenate([*parts, np.zeros(1, dtype=dtype)])


def read_ids(
    columns: Mapping[str, Array], n: int, segments: Sequence[tuple[str, int, bool, Buffer]], queue_hashes: Array
) -> tuple[Rows, list[IdSegment]]:
    """Return `n` rows with their keys and all columns of `columns`, and the segments.

    These are given as name, rows, whether it has the ids alone, and body. `queue_hashes`: by queue number.
    Raises `ValueError` or `IndexError` when the parts do not fit together.
    """
    read = [IdSegment.read(*segment) for segment in segments]
    rows = Rows(np.zeros(n, dtype=np.uint64), {name: columns.get(name) for name in ROW_COLUMNS})
    if _SEGMENT not in columns:
        rows.key = keys_of(rows["hi"], rows["lo"], queue_hashes[rows["queue"]], rows["flags"])
        return rows, [segment for segment, _, _ in read]
    number = columns[_SEGMENT]
    if number.max(initial=0) > len(segments):
        raise ValueError("ids are in a segment that is not there")
    made = [segment for segment, _, _ in read]
    sizes = [segment.rows for segment in made]
    alive = np.unpackbits(columns[_ALIVE], count=sum(sizes)).view(bool)
    id_at = np.full(n, -1, dtype=np.int32)
    start = 0
    for i, size in enumerate(sizes, start=1):
        id_at[nonzero(number == i)] = start + nonzero(alive[start : start + size])
        start += size
    # One gather from all segments together is faster than one from each. A row that is in none takes the zero at the end.
    zero = np.zeros(1, dtype=np.uint64)
    hi = np.concatenate([*(of_segment for _, of_segment, _ in read), zero])[id_at]
    key = np.concatenate([*(lo_or_key for _, _, lo_or_key in read), zero])[id_at]
    for name in LASTING:
        if any(name in segment.lasting for segment in made):
            rows.columns[name] = rows[name] ^ _in_segments(name, made)[id_at]
    in_head = nonzero(number == 0)
    hi[in_head] = columns["hi"]
    hashes, flags = queue_hashes[rows["queue"]], rows["flags"]
    lo = lows_of(hi, key, hashes, flags)
    lo[in_head] = columns["lo"]
    alone = np.repeat([*(segment.is_ids_alone for segment in made), False], [*sizes, 1])
    with_lo = nonzero(alone[id_at]) if alone.any() else in_head[:0]
    lo[with_lo] = key[with_lo]
    other = np.concatenate([in_head, with_lo])
    key[other] = keys_of(hi[other], lo[other], hashes[other], flags[other])
    rows.key = key
    rows.columns |= {"hi": hi, "lo": lo, "id_at": id_at}
    return rows, made


def _kept(sizes: Sequence[int], left: Sequence[int]) -> list[int]:
    """Return which segments stay as they are. `left`: how many of the ids of each still have a row."""
    kept = [i for i, live in enumerate(left) if live]
    gone = sum(sizes[i] - left[i] for i in kept)
    if gone * 2 > sum(left):
        kept = [i for i in kept if (sizes[i] - left[i]) * 2 <= left[i]]
    if len(kept) >= MOST_SEGMENTS:
        kept = [max(kept, key=lambda i: left[i])]
    return kept
