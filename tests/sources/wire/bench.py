"""Decoding speed: `python -m tests.sources.wire.bench [EVENTS]`.

The unit is events per second of CPU time on one core, so that other load on the machine matters less.
"""

from __future__ import annotations

import json
import random
import sys
import time
import uuid
from typing import Any

import pyarrow as pa

from sources.wire import decode_records, encode_arrow
from sources.wire.records import Values

_START_MS = 1_760_000_000_000


def make_events(count: int) -> list[dict[str, Any]]:
    """Sends, receives and deletes over forty queues; about 166 bytes each as compact JSON."""
    generator = random.Random(1)
    events = []
    for n in range(count):
        kind = generator.choice(["sent", "received", "deleted"])
        event: dict[str, Any] = {
            "v": 1,
            "type": kind,
            "at": _START_MS + n,
            "system": "aws_sqs",
            "queue": f"orders-{generator.randrange(40)}",
            "message_id": str(uuid.UUID(int=generator.getrandbits(128))),
            "consumer": "worker-1",
        }
        if kind == "received":
            event |= {"receive_count": generator.randrange(1, 4), "sent_at": _START_MS + n - 500}
        elif kind == "sent":
            event["group"] = f"g{generator.randrange(500)}"
        events.append(event)
    return events


def best_cpu_s(values: Values, repeats: int = 4) -> float:
    """Return the least CPU time of several runs, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        decoded = decode_records(values)
        best = min(best, time.process_time() - start)
        if decoded.invalid:
            raise AssertionError(decoded.invalid[0])
    return best


def main(count: int) -> None:
    """Print the results as a table."""
    events = make_events(count)
    lines = [json.dumps(event, separators=(",", ":")).encode() for event in events]
    forms: dict[str, Values] = {
        "NDJSON, 1,000 events per record": [b"\n".join(lines[i : i + 1000]) for i in range(0, count, 1000)],
        "one object per record": lines,
        "the same as a pyarrow array": pa.array(lines, pa.binary()),
        "JSON array, 1,000 per record": [b"[" + b",".join(lines[i : i + 1000]) + b"]" for i in range(0, count, 1000)],
        "Arrow, 10,000 per record": [encode_arrow(events[i : i + 10_000]) for i in range(0, count, 10_000)],
        "Arrow, 1,000 per record": [encode_arrow(events[i : i + 1000]) for i in range(0, count, 1000)],
    }
    for name, values in forms.items():
        seconds = best_cpu_s(values)
        size = (values.nbytes if isinstance(values, pa.Array) else sum(map(len, values))) / count
        sys.stdout.write(f"{name:32} {count / seconds / 1e6:6.2f} M events/s {size:6.1f} B/event\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
