"""Spark's logs of the batches: what each reads from each source, the files `offsets/N` of a checkpoint, and which are finished.

A file of offsets has a line with its format version, a line of JSON about the batch, then one line per source in the order in
which the pipeline reads them: the ticks come first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from streaming.folder import Folder

FOLDER: Final = "offsets"
"""Name of the folder in the checkpoint."""
COMMITS: Final = "commits"
"""Name of the folder of Spark's other log, of the batches that are finished."""

_FIRST_SOURCE: Final = 2

Partition = tuple[str, int]
"""Topic and partition number."""
Offsets = Mapping[Partition, int]


def batch_ids(log: Folder) -> list[int]:
    """Return the batches in one of Spark's logs (`offsets`, `commits`), ascending: its files are named by their numbers."""
    return sorted(int(name) for name in log.names() if name.isdigit())


def batch_time_ms(logged: bytes) -> int:
    """Return when Spark began the batch, in epoch milliseconds. Raises `ValueError` when the log has another format."""
    try:
        return int(json.loads(logged.decode().splitlines()[1])["batchTimestampMs"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"another form than expected: {error}") from error


def last_tick(logged: bytes) -> int:
    """Return the second up to which the batch has ticks."""
    return int(logged.decode().splitlines()[_FIRST_SOURCE])


def with_last_tick(logged: bytes, tick: int) -> bytes:
    """Return the same log with ticks up to another second."""
    lines = logged.decode().splitlines()
    lines[_FIRST_SOURCE] = str(tick)
    return "\n".join(lines).encode()


def kafka_offsets(logged: bytes) -> dict[Partition, int]:
    """Return the Kafka source's offsets from one of Spark's batch logs; none where there is no such source."""
    for line in logged.decode().splitlines()[_FIRST_SOURCE:]:
        found = _of_line(line)
        if found is not None:
            return found
    return {}


def with_offsets(logged: bytes, changed: Offsets) -> bytes:
    """Return the same log with other offsets for some partitions of its Kafka source."""
    lines = logged.decode().splitlines()
    for number, line in enumerate(lines[_FIRST_SOURCE:], start=_FIRST_SOURCE):
        found = _of_line(line)
        if found is not None:
            body: dict[str, dict[str, int]] = {}
            for (topic, partition), at in {**found, **changed}.items():
                body.setdefault(topic, {})[str(partition)] = at
            lines[number] = json.dumps(body, separators=(",", ":"))
    return "\n".join(lines).encode()


def _of_line(line: str) -> dict[Partition, int] | None:
    try:
        body = json.loads(line)
        if not isinstance(body, dict) or not body:
            return None
        return {(topic, int(partition)): int(at) for topic, of_topic in body.items() for partition, at in of_topic.items()}
    except (ValueError, AttributeError, TypeError):
        return None
