"""Events and records for tests, in the wire format."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

RECORDS = pa.schema([("value", pa.binary()), ("origin", pa.string()), ("position", pa.int64())])

T0 = 1_700_000_000_000
"""An arbitrary time, epoch milliseconds."""


def event(kind: str, message_id: str | None = None, at: int = T0, *, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    """Return one event of an SQS queue."""
    about = {} if message_id is None else {"message_id": message_id}
    return {"v": 1, "type": kind, "at": at, "system": "aws_sqs", "queue": queue, **about, **fields}


def ndjson(*events: dict[str, Any]) -> bytes:
    """Return a record with several events."""
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


def batch(*values: bytes | None, origin: str | None = "topic/0") -> pa.RecordBatch:
    """Return records as the decode stage receives them; positions count from 100."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, pa.binary()),
            pa.array([origin] * len(values), pa.string()),
            pa.array(range(100, 100 + len(values)), pa.int64()),
        ],
        schema=RECORDS,
    )


def ticks(count: int) -> pa.RecordBatch:
    """Return tick records: no value, no origin."""
    return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in RECORDS], schema=RECORDS)
