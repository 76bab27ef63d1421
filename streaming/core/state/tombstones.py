"""Deleted messages, compacted into immutable segments until the lateness expires.

A deleted message is kept for the lateness, so that its late events can still be applied. There may be a hundred times as many
of these as live messages, and hardly any is looked up again. So they leave the rows in segments that are packed once, written
once and normally never unpacked. A segment's keys precede it uncompressed, so looking a message up costs a search and no
unpacking. A message with a late event becomes a row again (`restore_rows`); its copy in the segment is then ignored, because
rows take precedence over segments and newer segments over older ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, nonzero, pack_columns, text_columns, texts_of, unpack_columns
from streaming.core.settings import Settings
from streaming.core.state.interner import Interner
from streaming.core.state.related_columns import OF_ATTEMPTS, OF_ROWS, to_distances, to_times
from streaming.core.state.rows import F_ARRIVED, F_DELETED, F_ENDED, F_MOVE_INFERRED, ROW_COLUMNS, Rows, lows_of
from streaming.core.state.state import ATTEMPT_COLUMNS, ShardState, TombstoneSegment
from streaming.core.state.upgrades import FORMAT_VERSION, upgrade_segment

FEWEST_TOMBSTONES: Final = 4_096
"""The fewest messages in a segment: each segment costs a search per step."""
LEAST_SHARE: Final = 16
"""Messages are compacted once they are the rows divided by this: until then, every version of the state has them."""
JUST_ENDED_MS: Final = 2_500
"""Messages that ended this long before a step stay rows: the broker's counts of that time may arrive only in the next one."""
MERGED_SEGMENTS: Final = 8
"""The number of neighbouring segments of similar size that are merged into one."""
MERGED_ROWS: Final = 1 << 18
"""The most rows a merge may produce: merging takes time within one step."""
MERGED_SPANS: Final = 6
"""A merged segment covers at most the lateness divided by this, because it goes only when its last message is old enough."""

_RAW: Final = frozenset({"hi", "lo", "batch", "a.batch"})
_ROW_STEPS: Final = "a.row_steps"
"""The row of each attempt's message, as the distance from that of the attempt before."""


def compact_deleted(state: ShardState, settings: Settings) -> None:
    """Compact deleted messages once they are a sixteenth of the rows, and drop segments older than the lateness."""
    horizon = state.oldest_timely_at(settings)
    state.segments = [segment for segment in state.segments if segment.last_end >= horizon]
    rows = state.rows
    most = np.count_nonzero(rows["ended"])
    if most < FEWEST_TOMBSTONES or most * LEAST_SHARE < len(rows):
        return
    chosen = _plain(state, horizon)
    n = int(chosen.sum())
    if n < FEWEST_TOMBSTONES or n * LEAST_SHARE < len(rows):
        return
    part = _Part(rows.some(chosen), state.texts, _attempts_of(state.attempts, rows.key[chosen]))
    state.segments.append(_segment(state, part))
    state.drop_timelines(part.rows.key)
    # One that was deleted after an outdated loss does not end by that any more.
    for key in part.rows.key[part.rows["outdated_end"] > 0].tolist() if state.loss_reasons else ():
        state.loss_reasons.pop(key, None)
    rows.keep(~chosen)
    while _may_merge(state.segments, settings):
        state.segments[-MERGED_SEGMENTS:] = [_merged(state, state.segments[-MERGED_SEGMENTS:], horizon)]


def restore_rows(state: ShardState, keys: Array, settings: Settings) -> bool:
    """Restore as rows those of `keys` that are in segments and not older than the lateness.

    `keys` ascend. Returns True when there were any.
    """
    if not state.segments or not len(keys):
        return False
    horizon = state.oldest_timely_at(settings)
    _, here = state.rows.find(keys)
    wanted = keys[~here]
    restored_any = False
    for segment in reversed(state.segments):
        at = np.searchsorted(segment.keys, wanted)
        found = segment.keys[np.minimum(at, segment.rows - 1)] == wanted
        if found.any():
            restored_any |= _bring_back(state, segment, at[found], horizon)
            wanted = wanted[~found]
    return restored_any


def restore_queues(state: ShardState, asked: Array, settings: Settings) -> None:
    """Restore as rows everything compacted together with messages of some queues; `asked`: whether it is, for each queue."""
    for segment in [segment for segment in state.segments if asked[segment.queues].any()]:
        restore_rows(state, segment.keys, settings)
        state.segments.remove(segment)


def forgotten(state: ShardState, ended: Array, settings: Settings) -> Array:
    """Return which of these ends are older than the lateness.

    Such a message counts as forgotten whether or not it is still stored, so that all shards agree, and rows agree with segments.
    """
    result: Array = (ended > 0) & (ended < state.oldest_timely_at(settings))
    return result


def _may_merge(segments: Sequence[TombstoneSegment], settings: Settings) -> bool:
    few = segments[-MERGED_SEGMENTS:]
    if len(few) < MERGED_SEGMENTS:
        return False
    sizes = [segment.rows for segment in few]
    # A segment begins about where the one before it ends.
    before = segments[-MERGED_SEGMENTS - 1] if len(segments) > MERGED_SEGMENTS else few[0]
    span_ms = few[-1].last_end - before.last_end
    return sum(sizes) <= MERGED_ROWS and 2 * max(sizes) <= sum(sizes) and span_ms * MERGED_SPANS <= settings.lateness_ms


def _plain(state: ShardState, horizon: int) -> Array:
    """Return the rows that only a deletion ended, and that are reported again only if an event concerns them."""
    rows, table = state.rows, state.attempts
    flags, ended = rows["flags"], rows["ended"]
    special = F_ARRIVED | F_MOVE_INFERRED | (F_ENDED & ~F_DELETED)
    chosen: Array = (
        (ended >= max(horizon, 1))
        & (ended <= state.now - JUST_ENDED_MS)
        & ((flags & np.uint32(special | F_DELETED)) == F_DELETED)
    )
    if rows.has("parent"):
        chosen &= rows["parent"] == 0
    dead = state.queues.column("dead_letter")
    if dead.any():
        chosen &= ~dead[rows["queue"]]
    # A message is forgotten before any name that was last used at its end or later.
    for names, column in ((state.groups, "group"), (state.consumers, "consumer")):
        if rows.has(column):
            chosen &= _known_until(names, rows[column], ended)
    if len(table["key"]):
        # A failed batch may be reported later, and is then looked up in the timelines.
        at, found = rows.find(table["key"])
        stays = ~_known_until(state.consumers, table["consumer"], np.append(ended, 0)[at]) | (table["batch"] != 0)
        chosen[at[found & stays]] = False
    return chosen


def _known_until(names: Interner, number: Array, ended: Array) -> Array:
    known: Array = (number < 0) | (np.append(names.time, 0)[number] >= ended)
    return known


class _Part(NamedTuple):
    """Rows from a state or a segment, the texts of their ids, and their timelines."""

    rows: Rows
    texts: pa.Array
    attempts: dict[str, Array]


def _attempts_of(table: dict[str, Array], keys: Array) -> dict[str, Array]:
    """Return the attempts of some messages; `keys` ascend."""
    at = np.minimum(np.searchsorted(keys, table["key"]), max(len(keys) - 1, 0))
    chosen = keys[at] == table["key"] if len(keys) else np.zeros(len(table["key"]), dtype=bool)
    return {name: values[chosen] for name, values in table.items()}


def _in_order(tables: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Combine attempts from several sources into one table."""
    joined = {name: np.concatenate([table[name] for table in tables]) for name in ATTEMPT_COLUMNS}
    order = np.lexsort((joined["code"], joined["at"], joined["key"]))
    return {name: values[order] for name, values in joined.items()}


def _segment(state: ShardState, part: _Part) -> TombstoneSegment:
    rows = part.rows
    columns: dict[str, Array] = {name: values for name, values in rows.columns.items() if values is not None and name != "id_at"}
    if "text" in columns:
        has_text = columns["text"] >= 0
        used = part.texts.take(pa.array(columns["text"][has_text]))
        columns["text"] = np.where(has_text, np.cumsum(has_text) - 1, -1).astype(np.int32)
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(used)
    if np.array_equal(_lows(state, rows), rows["lo"]):
        columns.pop("lo", None)
    columns = to_distances(columns, OF_ROWS, rows.columns)
    if len(part.attempts["key"]):
        attempts = {f"a.{name}": values for name, values in part.attempts.items() if name != "key"}
        # Each message of an attempt is in the segment.
        attempts[_ROW_STEPS] = np.diff(np.searchsorted(rows.key, part.attempts["key"]), prepend=0)
        columns |= to_distances(attempts, OF_ATTEMPTS, attempts)
    packed = pack_columns(columns, {"version": FORMAT_VERSION}, raw=_RAW, compress=True)
    body = b"".join((rows.key.tobytes(), packed))
    return TombstoneSegment(
        name=hashlib.blake2b(body, digest_size=16).hexdigest(),
        rows=len(rows),
        last_end=int(rows["ended"].max()),
        queues=nonzero(np.bincount(rows["queue"])),
        renumbered=state.renumbered,
        body=body,
    )


def _lows(state: ShardState, rows: Rows) -> Array:
    """Return `lo` of some rows as it follows from their keys."""
    return lows_of(rows["hi"], rows.key, state.queues.hashes[rows["queue"]], rows["flags"])


def _unpacked(state: ShardState, segment: TombstoneSegment) -> _Part:
    """Unpack a segment, with its names renumbered to the current numbers."""
    columns, header = unpack_columns(memoryview(segment.body)[8 * segment.rows :])
    upgrade_segment(columns, header)
    texts = pa.array([], pa.string())
    if "texts.lengths" in columns:
        texts = texts_of(columns.pop("texts.lengths"), columns.pop("texts.bytes"))
    to_times(columns, OF_ROWS)
    to_times(columns, OF_ATTEMPTS)
    if _ROW_STEPS in columns:
        columns["a.key"] = segment.keys[np.cumsum(columns.pop(_ROW_STEPS))]
    rows = Rows(segment.keys, {name: columns.get(name) for name in ROW_COLUMNS})
    if rows.columns["lo"] is None:
        rows.columns["lo"] = _lows(state, rows)
    attempts = {name: columns.get(f"a.{name}", np.zeros(0, dtype=dtype)) for name, dtype in ATTEMPT_COLUMNS.items()}
    for serial, (column, moved) in state.renumberings.items():
        if serial < segment.renumbered:
            continue
        numbers = rows.columns[column]
        if numbers is not None:
            rows.columns[column] = moved[numbers]
        if column in attempts:
            attempts[column] = moved[attempts[column]]
    return _Part(rows, texts, attempts)


def _bring_back(state: ShardState, segment: TombstoneSegment, at: Array, horizon: int) -> bool:
    rows, texts, attempts = _unpacked(state, segment)
    at = at[rows.at("ended", at) >= horizon]
    if not len(at):
        return False
    keys = segment.keys[at]
    where = np.searchsorted(state.rows.key, keys)
    state.rows.insert(where, keys)
    here = where + np.arange(len(keys))
    for name, values in rows.columns.items():
        if values is not None and name != "text":
            state.rows.put(name, here, values[at])
    text = rows.at("text", at)
    has_text = text >= 0
    if has_text.any():
        state.rows.put("text", here[has_text], (len(state.texts) + np.arange(has_text.sum())).astype(np.int32))
        state.texts = pa.concat_arrays([state.texts, texts.take(pa.array(text[has_text]))])
    restored = _attempts_of(attempts, keys)
    if len(restored["key"]):
        state.attempts = _in_order([state.attempts, restored])
    return True


def _merged(state: ShardState, segments: Sequence[TombstoneSegment], horizon: int) -> TombstoneSegment:
    """Merge neighbouring segments, oldest first: keep the newest copy of a message, and none older than the lateness."""
    parts = [_unpacked(state, segment) for segment in segments]
    key = np.concatenate([part.rows.key for part in parts])
    source = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    offsets = np.cumsum([0] + [len(part.texts) for part in parts])
    columns: dict[str, Array | None] = dict.fromkeys(ROW_COLUMNS)
    for name in ROW_COLUMNS:
        if any(part.rows.has(name) for part in parts):
            columns[name] = np.concatenate([part.rows[name] for part in parts])
    text = columns["text"]
    if text is not None:
        columns["text"] = np.where(text < 0, -1, text + offsets[source]).astype(np.int32)
    order = np.argsort(key, kind="stable")
    newest = np.append(key[order][1:] != key[order][:-1], True)
    ended = columns["ended"]
    assert ended is not None, "every compacted message ended"
    kept = order[newest & (ended[order] >= horizon)]
    rows = Rows(key, columns).some(kept)
    attempts = _in_order([_attempts_of(part.attempts, rows.key[source[kept] == i]) for i, part in enumerate(parts)])
    return _segment(state, _Part(rows, pa.concat_arrays([part.texts for part in parts]), attempts))
