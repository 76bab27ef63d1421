"""Translate Spark's report on a batch into the pipeline's terms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """A batch that has been committed."""

    batch_id: int
    duration_s: float
    waiting: int | None
    """Records (Kafka) and files (spool) in the sources that no batch has read; None when no source reports it."""
    durations_ms: Mapping[str, int]
    """Durations by Spark's names: addBatch, walCommit, commitOffsets, queryPlanning, latestOffset…"""


def progress_of(report: Mapping[str, Any]) -> Progress:
    """Read the `Progress` from the JSON of a StreamingQueryProgress."""
    sources: Sequence[Mapping[str, Any]] = report.get("sources", ())
    waiting = [count for source in sources if (count := _waiting(source)) is not None]
    return Progress(
        batch_id=int(report["batchId"]),
        duration_s=int(report.get("batchDuration") or report.get("durationMs", {}).get("triggerExecution", 0)) / 1000,
        waiting=sum(waiting) if waiting else None,
        durations_ms={name: int(ms) for name, ms in report.get("durationMs", {}).items()},
    )


def _waiting(source: Mapping[str, Any]) -> int | None:
    end, latest = _kafka_offsets(source.get("endOffset")), _kafka_offsets(source.get("latestOffset"))
    if end is not None and latest is not None:
        return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    outstanding = (source.get("metrics") or {}).get("numFilesOutstanding")
    return int(outstanding) if outstanding is not None else None


def _kafka_offsets(offset: Any) -> dict[tuple[str, str], int] | None:
    """Return offsets by topic and partition; None for other sources."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not all(isinstance(of_topic, dict) for of_topic in offset.values()):
        return None
    return {(topic, partition): int(at) for topic, of_topic in offset.items() for partition, at in of_topic.items()}
