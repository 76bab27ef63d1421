"""Spark's progress events in the pipeline's own words. Only translates, and never calls Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Progress:
    """A batch that is done and committed."""

    batch_id: int
    duration_s: float
    waiting: int | None
    """Records (Kafka) and files (spool) in the sources that no batch has taken; None when no source tells."""
    durations_ms: Mapping[str, int]
    """By Spark's names: addBatch, walCommit, commitOffsets, queryPlanning, latestOffset…"""


class ProgressListener(StreamingQueryListener):
    """Hands each batch's `Progress` to a callable, on Spark's listener thread."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._java: Any = None

    def on_progress_json(self, text: str) -> None:
        """A batch is done; `text` is Spark's report of it."""
        try:
            self._on_progress(progress_of(json.loads(text)))
        except Exception:
            # Whatever is raised here ends in Spark's own log, where nobody looks.
            _log.exception("progress_not_understood")

    def on_started(self, query_id: str, run_id: str) -> None:
        """The query is up."""
        _log.info("query_started", query_id=query_id, run_id=run_id)

    @property
    def _jlistener(self) -> Any:
        # PySpark would take each report apart by a hundred calls into Java, a tenth of all a small batch costs.
        if self._java is None:
            context: Any = SparkContext._active_spark_context
            self._java = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Events(self))
        return self._java

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """PySpark's way in, not used."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """PySpark's way in, not used."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """PySpark's way in, not used."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """PySpark's way in, not used."""


class _Events:
    """What Java calls: one call back per event, for its text."""

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - the Java interface's names
        self._listener.on_started(event.id().toString(), event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._listener.on_progress_json(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to read, and no tick was due."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The job says why."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def progress_of(report: Mapping[str, Any]) -> Progress:
    """`Progress` from the JSON of a StreamingQueryProgress."""
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
    """Offset by topic and partition; None for the offsets of other sources."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not all(isinstance(of_topic, dict) for of_topic in offset.values()):
        return None
    return {(topic, partition): int(at) for topic, of_topic in offset.items() for partition, at in of_topic.items()}
