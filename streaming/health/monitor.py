"""Metrics and status of the pipeline itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from sinks.clock import wall_ms
from sinks.prometheus import Family
from streaming.checkpoint.offset_log import Partition
from streaming.checkpoint.versions import LOST_FILES
from streaming.core.reporting.merge import Merged
from streaming.health.liveness import Liveness
from streaming.health.losses import Losses, named
from streaming.health.progress import Progress
from streaming.judge.snapshot import PipelineView
from streaming.spool.names import printable

_NAMED = 20
"""The most files that one log line names."""
_log = structlog.get_logger(__name__)


class Monitor:
    """Combines Spark's report on a batch with the batch's own. Thread-safe. `clock_ms` is never used for judging."""

    def __init__(self, clock_ms: Callable[[], int] = wall_ms) -> None:
        self._clock_ms = clock_ms
        self.liveness = Liveness()
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._lost: dict[str, int] = {}
        self._resets = 0
        self._reset: dict[Partition, int] = {}
        self._events: int | None = None
        self._events_at_ms = 0
        self._lag_s: float | None = None
        self._published: int | None = None
        """The batch published last…"""
        self._published_at_ms = 0
        """…and when it was first published."""

    def progressed(self, progress: Progress) -> None:
        """Record a committed batch."""
        self.liveness.progressed()
        with self._lock:
            self._progress = progress
        _log.debug("batch_done", batch_id=progress.batch_id, **progress.durations_ms)

    def published(
        self, batch_id: int, merged: Merged, state_bytes: int, state_rows: int, *, waiting_files: int | None = None
    ) -> PipelineView:
        """Return the view to publish with batch `batch_id`; values known only at a batch's end are those of the batch before.

        `waiting_files` is the number of waiting files in a spool folder, None without one.
        """
        now_ms = self._clock_ms()
        events = sum(merged.events_total.values())
        with self._lock:
            rate, new = None, 0
            if self._events is not None:
                # After a roll back to an earlier batch there are fewer than before.
                new = max(0, events - self._events)
                elapsed_ms = now_ms - self._events_at_ms
                rate = 1000 * new / elapsed_ms if elapsed_ms > 0 else None
            if new > 0 or self._lag_s is None:
                # The lag of the newest event: without events, keep the lag of the last batch that had some.
                self._lag_s = max(0, now_ms - merged.high_water) / 1000 if merged.high_water > 0 else None
            self._events, self._events_at_ms = events, now_ms
            # A batch that fails after it was published, as on a full disk, is published again and again, and nothing new is.
            if batch_id != self._published:
                self._published, self._published_at_ms = batch_id, now_ms
            progress = self._progress
            return PipelineView(
                batch_id=batch_id,
                batch_duration_s=progress.duration_s if progress else None,
                last_batch_at_ms=self._published_at_ms,
                lag_records=_sum(progress.waiting if progress else None, waiting_files),
                lag_s=self._lag_s,
                state_bytes=state_bytes,
                state_rows=state_rows,
                events_per_s=rate,
            )

    def lost(self, batch_id: int, losses: Losses, so_far: Mapping[str, int]) -> None:
        """Record what a batch lost from Kafka, and the total so far, as in a `Version`."""
        with self._lock:
            self._lost = dict(so_far)
            self._resets += len(losses.reset)
            self._reset |= losses.reset
        if losses.lost:
            _log.error(
                "kafka_records_lost",
                batch_id=batch_id,
                lost={named(partition): n for partition, n in losses.lost.items()},
                lost_so_far=sum(n for name, n in so_far.items() if name not in LOST_FILES.values()),
                cause="they were deleted from the topic before they were read",
                fix="give the topic a longer retention, or the job more cores",
            )
        if losses.reset:
            _log.error(
                "kafka_topic_reset",
                batch_id=batch_id,
                partitions={named(partition): at for partition, at in losses.reset.items()},
                cause="the topic was deleted and created again: what the old one still held is lost",
                action="the new one is read from its beginning",
            )

    def lost_files(self, batch_id: int, gone: Collection[str], refused: Collection[str]) -> None:
        """Record the spool files that a batch could not read."""
        if gone:
            _log.error(
                "spool_files_lost",
                batch_id=batch_id,
                files=[printable(name) for name in sorted(gone)[:_NAMED]],
                lost=len(gone),
                cause="they were removed, or cut short, between the planning of the batch and its reading",
                fix="leave the removal of files to source.spool.after_reading",
            )
        if refused:
            _log.error(
                "spool_files_refused",
                batch_id=batch_id,
                files=[printable(name) for name in sorted(refused)[:_NAMED]],
                lost=len(refused),
                cause="they are larger than 64 MiB and hold a JSON array, an object over many lines, or such a record batch",
                fix="write one event a line, or smaller files",
            )

    def pending_reset(self) -> dict[Partition, int]:
        """Return the partitions that were reset, with the offset at which Spark resumed, until `reset_done`."""
        with self._lock:
            return dict(self._reset)

    def reset_done(self, partitions: Iterable[Partition]) -> None:
        """Record that the next query reads these partitions from their beginning."""
        with self._lock:
            for partition in partitions:
                self._reset.pop(partition, None)

    def families(self) -> Iterable[Family]:
        """Return the losses for `/metrics`."""
        with self._lock:
            lost = [
                (dict(zip(("topic", "partition"), name.rsplit("/", 1), strict=True)), n)
                for name, n in self._lost.items()
                if name not in LOST_FILES.values()
            ]
            files = [({"reason": reason}, self._lost[name]) for reason, name in LOST_FILES.items() if name in self._lost]
            return (
                Family("queuewatch_pipeline_lost_records_total", lost),
                Family("queuewatch_pipeline_lost_files_total", files),
                Family("queuewatch_pipeline_offset_resets_total", [({}, self._resets)]),
            )

    @property
    def last_committed(self) -> int | None:
        """Return the id of the last batch known to be committed."""
        with self._lock:
            return self._progress.batch_id if self._progress else None


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
