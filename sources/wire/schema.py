"""The columns to which events are decoded."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

NAME: Final = pa.dictionary(pa.int32(), pa.string())
"""For columns with few distinct values over many rows: queues, groups, consumers."""

WIRE_SCHEMA: Final = pa.schema(
    [
        pa.field("type", NAME, nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("system", NAME),
        pa.field("scope", NAME),
        pa.field("queue", NAME),
        pa.field("message_id", pa.string()),
        pa.field("group", NAME),
        pa.field("sequence", pa.string()),
        pa.field("consumer", NAME),
        pa.field("to_queue", NAME),
        pa.field("from_queue", pa.string()),
        pa.field("new_message_id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("batch_id", pa.string()),
        pa.field("sent_at", pa.int64()),
        pa.field("first_received_at", pa.int64()),
        pa.field("invisible_until", pa.int64()),
        pa.field("visible_at", pa.int64()),
        pa.field("receive_count", pa.int32()),
        pa.field("ordered", pa.bool_()),
        pa.field("attributes", pa.string()),
    ]
)
"""Times are epoch milliseconds UTC; `attributes` is the JSON text of an object."""

PLAIN_SCHEMA: Final = pa.schema(
    [
        pa.field("v", pa.int64()),
        *(pa.field(f.name, pa.string() if f.type == NAME else f.type) for f in WIRE_SCHEMA),
    ]
)
"""The columns before validation: the same with plain strings, nullable, and the version."""

READ_SCHEMA: Final = pa.schema([pa.field("v", pa.int64()), *(pa.field(f.name, f.type) for f in WIRE_SCHEMA)])
"""`PLAIN_SCHEMA` with names already dictionary-encoded, as blocks of lines are read."""

NAME_FIELDS: Final = tuple(
    f.name for f in WIRE_SCHEMA if f.type in (NAME, pa.string()) and f.name not in ("attributes", "reason")
)
TIME_FIELDS: Final = ("at", "sent_at", "first_received_at", "invisible_until", "visible_at")


def no_values(count: int, kind: pa.DataType) -> pa.Array:
    """Return a column of nulls; for names, with an empty dictionary."""
    if kind == NAME:
        return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], pa.string()))
    return pa.nulls(count, kind)
