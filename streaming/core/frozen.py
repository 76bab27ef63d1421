"""Messages that ended, put aside until nothing can be said of them any more.

A message that was deleted is kept for the lateness, so that an event of it that comes late finds what it changes. There may
be a hundred times as many of these as there are live ones, and hardly any is ever asked for. So they leave the rows in
layers: packed once, written once, never unpacked in the ordinary course of things. A layer's keys stand in front of it as
they are, so that looking a message up costs a search and no unpacking. A message that is asked for comes back as a row
(`thaw`); its copy here then counts for nothing, as the rows come first and newer layers before older ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, pack_columns, unpack_columns
from streaming.core.packet import text_columns, texts_of
from streaming.core.rows import ENDS, F_ARRIVED, F_DELETED, F_MOVE_INFERRED, F_TIMELINE, ROW_COLUMNS, Rows
from streaming.core.settings import Settings
from streaming.core.state import Layer, ShardState

MERGED_LAYERS: Final = 8
"""So many neighbours of like size become one layer: each costs a search per step."""
MERGED_ROWS: Final = 1 << 18
"""No layer becomes larger by that: merging takes time in one step."""

_RAW: Final = frozenset({"hi", "lo", "batch"})


def freeze(state: ShardState, settings: Settings) -> None:
    """Put deleted messages aside once they are an eighth of the rows, and drop layers that are older than the lateness."""
    horizon = state.high_water - settings.lateness_ms
    state.frozen = [layer for layer in state.frozen if layer.last_end >= horizon]
    chosen = _plain(state, horizon)
    n = int(chosen.sum())
    if n < settings.frozen_rows_min or n * 8 < len(state.rows):
        return
    rows = state.rows
    part = Rows(rows.key[chosen], {name: None if v is None else v[chosen] for name, v in rows.columns.items()})
    state.frozen.append(_layer(state, part, state.texts))
    rows.keep(~chosen)
    while _may_merge(few := state.frozen[-MERGED_LAYERS:]):
        state.frozen[-MERGED_LAYERS:] = [_merged(state, few, horizon)]


def thaw(state: ShardState, keys: Array, settings: Settings) -> bool:
    """Make rows again of those of `keys`, which ascend, that are frozen and not older than the lateness. True when there were
    any."""
    if not state.frozen or not len(keys):
        return False
    horizon = state.high_water - settings.lateness_ms
    _, here = state.rows.find(keys)
    wanted = keys[~here]
    thawed = False
    for layer in reversed(state.frozen):
        at = np.searchsorted(layer.keys, wanted)
        found = layer.keys[np.minimum(at, layer.rows - 1)] == wanted
        if found.any():
            thawed |= _bring_back(state, layer, at[found], horizon)
            wanted = wanted[~found]
    return thawed


def thaw_queues(state: ShardState, numbers: Iterable[int], settings: Settings) -> None:
    """Make rows again of everything that is frozen together with messages of these queues."""
    asked = set(numbers)
    for layer in [layer for layer in state.frozen if not asked.isdisjoint(layer.queues)]:
        thaw(state, layer.keys, settings)
        state.frozen.remove(layer)


def forgotten(state: ShardState, ended: Array, settings: Settings) -> Array:
    """Which of these ends are older than the lateness: such a message counts as forgotten, whether or not it is still there.
    Every shard then agrees, and so do rows and layers."""
    result: Array = (ended > 0) & (ended < state.high_water - settings.lateness_ms)
    return result


def _may_merge(layers: Sequence[Layer]) -> bool:
    sizes = [layer.rows for layer in layers]
    return len(sizes) == MERGED_LAYERS and sum(sizes) <= MERGED_ROWS and 2 * max(sizes) <= sum(sizes)


def _plain(state: ShardState, horizon: int) -> Array:
    """Rows that ended by a deletion and by nothing else, of which nothing will be told unless an event is about them."""
    rows = state.rows
    flags, ended = rows["flags"], rows["ended"]
    special = F_TIMELINE | F_ARRIVED | F_MOVE_INFERRED | (ENDS & ~F_DELETED)
    chosen: Array = (ended >= max(horizon, 1)) & ((flags & np.uint32(special | F_DELETED)) == F_DELETED)
    if rows.has("parent"):
        chosen &= rows["parent"] == 0
    dead = np.array([q.dead_letter for q in state.queues], dtype=bool)
    if dead.any():
        chosen &= ~dead[rows["queue"]]
    for names, column in ((state.groups, "group"), (state.consumers, "consumer")):
        if rows.has(column):
            # A name that was heard of at the end or later is not forgotten before the message is.
            number = rows[column]
            chosen &= (number < 0) | (np.append(names.time, 0)[number] >= ended)
    return chosen


def _layer(state: ShardState, rows: Rows, texts: pa.Array) -> Layer:
    columns: dict[str, Array] = {name: values for name, values in rows.columns.items() if values is not None}
    if "text" in columns:
        told = columns["text"] >= 0
        used = texts.take(pa.array(columns["text"][told]))
        columns["text"] = np.where(told, np.cumsum(told) - 1, -1).astype(np.int32)
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(used)
    packed = pack_columns(columns, {}, raw=_RAW, compress=True)
    body = b"".join((rows.key.tobytes(), packed))
    return Layer(
        hashlib.blake2b(body, digest_size=16).hexdigest(),
        len(rows),
        int(rows["ended"].max()),
        np.flatnonzero(np.bincount(rows["queue"])).tolist(),
        state.renumbered,
        body,
    )


def _unpacked(state: ShardState, layer: Layer) -> tuple[Rows, pa.Array]:
    """The rows of a layer with the numbers that names have now, and their texts."""
    columns, _ = unpack_columns(memoryview(layer.body)[8 * layer.rows :])
    texts = pa.array([], pa.string())
    if "texts.lengths" in columns:
        texts = texts_of(columns.pop("texts.lengths"), columns.pop("texts.bytes"))
    rows = Rows(layer.keys, {name: columns.get(name) for name in ROW_COLUMNS})
    for serial, (column, moved) in state.renumberings.items():
        numbers = rows.columns[column]
        if serial >= layer.renumbered and numbers is not None:
            rows.columns[column] = moved[numbers]
    return rows, texts


def _bring_back(state: ShardState, layer: Layer, at: Array, horizon: int) -> bool:
    rows, texts = _unpacked(state, layer)
    at = at[rows.at("ended", at) >= horizon]
    if not len(at):
        return False
    keys = layer.keys[at]
    where = np.searchsorted(state.rows.key, keys)
    state.rows.insert(where, keys)
    here = where + np.arange(len(keys))
    for name, values in rows.columns.items():
        if values is not None and name != "text":
            state.rows.put(name, here, values[at])
    text = rows.at("text", at)
    told = text >= 0
    if told.any():
        state.rows.put("text", here[told], (len(state.texts) + np.arange(told.sum())).astype(np.int32))
        state.texts = pa.concat_arrays([state.texts, texts.take(pa.array(text[told]))])
    return True


def _merged(state: ShardState, layers: Sequence[Layer], horizon: int) -> Layer:
    """Neighbouring layers, oldest first, as one: of copies the newest, and none older than the lateness."""
    parts = [_unpacked(state, layer) for layer in layers]
    key = np.concatenate([rows.key for rows, _ in parts])
    offsets = np.cumsum([0] + [len(texts) for _, texts in parts])
    columns: dict[str, Array | None] = {}
    for name in ROW_COLUMNS:
        if any(rows.has(name) for rows, _ in parts):
            columns[name] = np.concatenate(
                [
                    rows[name] if name != "text" else np.where(rows[name] < 0, -1, rows[name] + offset).astype(np.int32)
                    for (rows, _), offset in zip(parts, offsets, strict=False)
                ]
            )
        else:
            columns[name] = None
    order = np.argsort(key, kind="stable")
    newest = np.append(key[order][1:] != key[order][:-1], True)
    ended = columns["ended"]
    assert ended is not None, "every frozen message ended"
    kept = order[newest & (ended[order] >= horizon)]
    rows = Rows(key[kept], {name: None if v is None else v[kept] for name, v in columns.items()})
    return _layer(state, rows, pa.concat_arrays([texts for _, texts in parts]))
