"""The ids of messages, apart from the rest of a state.

An id is sixteen random bytes that do not compress and never change; everything else about a message takes three to eight bytes. A
state is written with each batch, so the ids are written once, in immutable segments that are named by their content, and the
state records which rows have their ids there. Segments of which much is gone are written again without that.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from streaming.core.columns import Array, Buffer
from streaming.core.state.rows import Rows

MOST_SEGMENTS: Final = 12
"""With more segments than this, all but the largest are merged."""
IN_HEAD_SHARE: Final = 32
"""New ids are written with the head while they are fewer than the rows divided by this."""

_SEGMENT, _ALIVE = "id.segment", "id.alive"


@dataclass(frozen=True, slots=True)
class IdSegment:
    """Ids that were written together: all of `hi` and then all of `lo`, eight bytes each, in the order of their rows."""

    name: str
    rows: int
    body: Buffer

    @classmethod
    def of(cls, hi: Array, lo: Array) -> IdSegment:
        """Return the segment of some ids."""
        body = hi.tobytes() + lo.tobytes()
        return cls(hashlib.blake2b(body, digest_size=16).hexdigest(), len(hi), body)

    @property
    def ids(self) -> tuple[Array, Array]:
        """Return the two halves of each id. Raises `ValueError` when the body has another length."""
        hi, lo = np.frombuffer(self.body, dtype=np.uint64).reshape(2, self.rows)
        return hi, lo


class Placed(NamedTuple):
    """Where the ids of a state's rows are."""

    segments: list[IdSegment]
    columns: dict[str, Array]
    """For the head: the segment of each row, which ids of the segments still have a row, and the ids that are in no segment."""


class ReadIds(NamedTuple):
    """The ids of a state's rows; None for a column of only defaults."""

    hi: Array | None
    lo: Array | None
    id_at: Array | None
    """The column of that name in `Rows`."""


def place_ids(rows: Rows, segments: Sequence[IdSegment], apart_from: int | None) -> Placed:
    """Return where the ids of `rows` are to be; those in `segments` (see `Rows`' `id_at`) stay there unless much of one is gone.

    With fewer rows than `apart_from`, or None, all are in the head.
    """
    if apart_from is None or len(rows) < apart_from:
        return Placed([], {name: column for name in ("hi", "lo") if (column := rows.columns[name]) is not None})
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
    columns = {_SEGMENT: number}
    made = [segments[i] for i in kept]
    bits = [alive[starts[i] : starts[i + 1]] for i in kept]
    together = np.flatnonzero(number == fresh)
    if len(together):
        made.append(IdSegment.of(rows["hi"][together], rows["lo"][together]))
        bits.append(np.ones(len(together), dtype=bool))
    in_head = np.flatnonzero(number == 0)
    columns |= {_ALIVE: np.packbits(np.concatenate([alive[:0], *bits])), "hi": rows["hi"][in_head], "lo": rows["lo"][in_head]}
    return Placed(made, columns)


def read_ids(columns: Mapping[str, Array], rows: int, segments: Sequence[IdSegment]) -> ReadIds:
    """Return the ids of all rows. Raises `ValueError` or `IndexError` when the parts do not fit together."""
    if _SEGMENT not in columns:
        return ReadIds(columns.get("hi"), columns.get("lo"), None)
    number = columns[_SEGMENT]
    if number.max(initial=0) > len(segments):
        raise ValueError("ids are in a segment that is not there")
    alive = np.unpackbits(columns[_ALIVE], count=sum(segment.rows for segment in segments)).view(bool)
    hi, lo = np.empty(rows, dtype=np.uint64), np.empty(rows, dtype=np.uint64)
    id_at = np.full(rows, -1, dtype=np.int32)
    here = np.flatnonzero(number == 0)
    hi[here], lo[here] = columns["hi"], columns["lo"]
    start = 0
    for i, segment in enumerate(segments, start=1):
        here = np.flatnonzero(number == i)
        at = np.flatnonzero(alive[start : start + segment.rows])
        of_segment = segment.ids
        hi[here], lo[here], id_at[here] = of_segment[0][at], of_segment[1][at], at + start
        start += segment.rows
    return ReadIds(hi, lo, id_at)


def _kept(sizes: Sequence[int], left: Sequence[int]) -> list[int]:
    """Return which segments stay as they are. `left`: how many of the ids of each still have a row."""
    kept = [i for i, live in enumerate(left) if live]
    gone = sum(sizes[i] - left[i] for i in kept)
    if gone * 2 > sum(left):
        kept = [i for i in kept if (sizes[i] - left[i]) * 2 <= left[i]]
    if len(kept) >= MOST_SEGMENTS:
        kept = [max(kept, key=lambda i: left[i])]
    return kept
