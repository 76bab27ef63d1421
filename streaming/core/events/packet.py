"""The packet sent from decoding to one shard: rows, queue events and unreadable events. One blob per shard and input task."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming.core.columns import Array, pack_columns, text_columns, texts_of, unpack_columns
from streaming.core.events.events import DTYPES, Events, empty_columns
from streaming.core.events.queue_events import DTYPES as OF_QUEUES
from streaming.core.events.queue_events import QueueEvents, concatenated
from streaming.core.settings import QueueName

QUARANTINED_BYTES = 4096
"""The most that is kept of an unreadable event, in bytes; the rest is cut."""

_OF_QUEUES = "q."
"""Begins the names of the columns of events about queues."""
# Ids and hashes do not narrow: their bytes are random.
_RAW = frozenset({"hi", "lo", "batch", _OF_QUEUES + "identity"})


class Quarantined(NamedTuple):
    """One event that could not be read, kept for inspection."""

    reason: str
    detail: str
    raw: bytes
    origin: str
    line: int | None


@dataclass(slots=True)
class Packet:
    """Everything one shard receives in one step."""

    events: Events
    invalid: Counter[str] = field(default_factory=Counter)
    quarantine: list[Quarantined] = field(default_factory=list)


def empty_packet() -> Packet:
    """Return a packet without events."""
    return Packet(Events(empty_columns(), []))


def pack(packet: Packet) -> bytes:
    """Serialize the packet to a blob that `unpack` reads."""
    events = packet.events
    about_queues = events.about_queues
    header: dict[str, Any] = {
        "queues": events.queues,
        "groups": events.groups,
        "consumers": events.consumers,
        "reasons": events.reasons,
        "about_queues": [about_queues.consumers, about_queues.batches, about_queues.attributes],
        "skews": [[queue, skew] for queue, skew in events.skews.items()],
        "dlq": sorted(events.dead_letter_queues),
        "apparent_dlq": sorted(events.apparent_dead_letter_queues),
        "redriven_to": sorted(events.redrive_targets),
        "ordered": sorted(events.ordered_queues),
        "unordered": sorted(events.unordered_queues),
        "invalid": packet.invalid,
        "quarantine": [[q.reason, q.detail, base64.b64encode(q.raw).decode(), q.origin, q.line] for q in packet.quarantine],
    }
    columns = events.columns | {_OF_QUEUES + name: values for name, values in about_queues.columns.items()}
    if len(events.texts):
        columns["texts.lengths"], columns["texts.bytes"] = text_columns(events.texts)
    return pack_columns(columns, header, raw=_RAW, compress=False)


def unpack(blobs: Sequence[bytes]) -> Packet:
    """Read several blobs into one packet, in the given order."""
    packets = [_unpack_one(blob) for blob in blobs]
    if not packets:
        return empty_packet()
    full = [p for p in packets if not _is_empty(p)] or packets[:1]
    made = full[0] if len(full) == 1 else _concatenate(full)
    if len(full) < len(packets):
        # What is empty here names queues that other shards have events of: all shards know the same queues.
        made.events.queues = list(dict.fromkeys(name for p in (made, *packets) for name in p.events.queues))
    return made


def _is_empty(packet: Packet) -> bool:
    events = packet.events
    about = events.dead_letter_queues or events.apparent_dead_letter_queues or events.redrive_targets
    order = events.ordered_queues or events.unordered_queues
    return not (len(events) or len(events.about_queues) or packet.invalid or about or order)


def _unpack_one(blob: bytes) -> Packet:
    columns, header = unpack_columns(blob)
    texts = pa.array([], pa.string())
    if "texts.lengths" in columns:
        texts = texts_of(columns.pop("texts.lengths"), columns.pop("texts.bytes"))
    queues = [_name(q) for q in header["queues"]]
    about_queues = QueueEvents({name: columns.pop(_OF_QUEUES + name) for name in OF_QUEUES}, *header["about_queues"])
    events = Events(
        columns=columns,
        queues=queues,
        groups=header["groups"],
        consumers=header["consumers"],
        reasons=header["reasons"],
        texts=texts,
        about_queues=about_queues,
        dead_letter_queues={_name(q) for q in header["dlq"]},
        apparent_dead_letter_queues={_name(q) for q in header["apparent_dlq"]},
        redrive_targets={_name(q) for q in header["redriven_to"]},
        ordered_queues={_name(q) for q in header["ordered"]},
        unordered_queues={_name(q) for q in header["unordered"]},
        skews={_name(q): skew for q, skew in header["skews"]},
    )
    kept = [
        Quarantined(reason=r, detail=d, raw=base64.b64decode(raw), origin=o, line=line)
        for r, d, raw, o, line in header["quarantine"]
    ]
    return Packet(events, Counter(header["invalid"]), kept)


def _name(parts: Sequence[str]) -> QueueName:
    return QueueName(*parts)


def _concatenate(packets: Sequence[Packet]) -> Packet:
    indexed = {
        "queue": "queues",
        "peer": "queues",
        "group": "groups",
        "consumer": "consumers",
        "reason": "reasons",
    }
    tables: dict[str, dict[Any, int]] = {name: {} for name in set(indexed.values())}
    columns: dict[str, list[Array]] = {name: [] for name in DTYPES}
    out = Packet(Events(empty_columns(), []))
    texts: list[pa.Array] = []
    n_texts = 0
    about_queues: list[tuple[QueueEvents, Array]] = []
    for packet in packets:
        events = packet.events
        moved: dict[str, Array] = {}
        for name, table in tables.items():
            moved[name] = np.array([table.setdefault(w, len(table)) for w in getattr(events, name)] + [-1], dtype=np.int32)
        for name, values in events.columns.items():
            if name in indexed:
                values = moved[indexed[name]][values]
            elif name == "text" and n_texts:
                values = np.where(values < 0, values, values + n_texts).astype(values.dtype)
            columns[name].append(values)
        texts.append(events.texts)
        n_texts += len(events.texts)
        about_queues.append((events.about_queues, moved["queues"]))
        out.events.dead_letter_queues |= events.dead_letter_queues
        out.events.apparent_dead_letter_queues |= events.apparent_dead_letter_queues
        out.events.redrive_targets |= events.redrive_targets
        out.events.ordered_queues |= events.ordered_queues
        out.events.unordered_queues |= events.unordered_queues
        for queue, skew in events.skews.items():
            out.events.skews[queue] = max(skew, out.events.skews.get(queue, 0))
        out.invalid += packet.invalid
        out.quarantine += packet.quarantine
    out.events.columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    out.events.texts = pa.concat_arrays(texts)
    out.events.about_queues = concatenated(about_queues)
    for name, table in tables.items():
        setattr(out.events, name, list(table))
    return out
