"""`queuewatch replay --engine spark`: the stateful stage of the live job, given recorded steps."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.state_files import state_keeper
from streaming.config.service import SparkSection
from streaming.core.reporting.merge import Merged, merge
from streaming.core.settings import Settings
from streaming.errors import JobError
from streaming.replay.recording import Step
from streaming.replay.run import packets
from streaming.spark.decode import PACKET_SCHEMA
from streaming.spark.failure import reason_of
from streaming.spark.pipeline import tracked
from streaming.spark.publish import steps_of
from streaming.spark.session import open_session

STEPS_PER_FILE: Final = 500
EVENTS_PER_FILE: Final = 500_000
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True)
class SparkEngine:
    """An engine for `streaming.replay.run.replay`, with a Spark session of its own."""

    config: SparkSection
    shards: int = 2

    def __call__(self, steps: Iterable[Step], settings: Settings) -> Iterator[tuple[Step, Merged]]:
        """Yield the merged report of each step, in order. Raises `JobError` when Spark fails."""
        config = self.config.model_copy(update={"shards": self.shards})
        spark = open_session(config, app_name="queuewatch-replay", with_kafka=False)
        try:
            yield from run_steps(spark, steps, settings, self.shards)
        finally:
            spark.stop()


def run_steps(spark: SparkSession, steps: Iterable[Step], settings: Settings, shards: int) -> Iterator[tuple[Step, Merged]]:
    """Stream `steps` through the tracking stage on an existing session whose shuffle has `shards` partitions.

    The driver routes each step and writes files of packets; Spark takes one file a batch, in order.
    """
    with tempfile.TemporaryDirectory(prefix="queuewatch-replay-", ignore_cleanup_errors=True) as folder:
        inbox, checkpoint = Path(folder, "steps"), Path(folder, "checkpoint")
        inbox.mkdir()
        waiting = _write(steps, inbox, settings, shards)
        if not waiting:
            return
        results: queue.Queue[list[Row]] = queue.Queue(maxsize=4)
        stopped = threading.Event()
        query = _start(spark, inbox, checkpoint, settings, results, stopped)
        try:
            for rows in _batches(query, results):
                for step_ms, reports in steps_of(rows):
                    step = waiting.pop(step_ms)
                    yield step, merge(reports, settings)
        finally:
            stopped.set()
            query.stop()
        if waiting:
            raise JobError(f"Spark returned no result for {len(waiting)} steps", "Report this, with the recording if you can")


def _write(steps: Iterable[Step], inbox: Path, settings: Settings, shards: int) -> dict[int, Step]:
    """Write files of packets with whole steps in each; return the steps by their time, without their events."""
    keys = shard_keys(shards)
    known: dict[int, Step] = {}
    for number, chunk in enumerate(_chunks(steps)):
        rows: dict[str, list[object]] = {"shard": [], "step_ms": [], "part": [], "packet": []}
        for step in chunk:
            for key, packet in zip(keys, packets(step, shards, settings), strict=True):
                for name, value in zip(rows, (key, step.at, 0, packet), strict=True):
                    rows[name].append(value)
            known[step.at] = Step(
                at=step.at, events=step.events.slice(0, 0), invalid=step.invalid, quarantine=[], shown=step.shown
            )
        path = inbox / f"{number:06d}.parquet"
        pq.write_table(pa.table(rows, schema=_ARROW_SCHEMA), path)
        # Spark reads files in the order of their modification times, which may be equal for files written quickly.
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return known


_ARROW_SCHEMA: Final = pa.schema([("shard", pa.int32()), ("step_ms", pa.int64()), ("part", pa.int32()), ("packet", pa.binary())])


def _chunks(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Group consecutive steps, as many as fit a file."""
    chunk: list[Step] = []
    events = 0
    for step in steps:
        if chunk and (len(chunk) == STEPS_PER_FILE or events + len(step.events) > EVENTS_PER_FILE):
            yield chunk
            chunk, events = [], 0
        chunk.append(step)
        events += len(step.events)
    if chunk:
        yield chunk


def _start(
    spark: SparkSession,
    inbox: Path,
    checkpoint: Path,
    settings: Settings,
    results: queue.Queue[list[Row]],
    stopped: threading.Event,
) -> StreamingQuery:
    def hand_over(batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        while not stopped.is_set():
            try:
                results.put(rows, timeout=_LOOK_EVERY_S)
            except queue.Full:
                continue
            return

    recorded = spark.readStream.schema(PACKET_SCHEMA).option("maxFilesPerTrigger", 1).option("maxFileAge", "3650d")
    return (
        tracked(recorded.parquet(str(inbox)), settings, state_keeper(str(checkpoint)))
        .writeStream.foreachBatch(hand_over)
        .outputMode("update")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def _batches(query: StreamingQuery, results: queue.Queue[list[Row]]) -> Iterator[list[Row]]:
    while True:
        try:
            yield results.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            if query.isActive:
                continue
            error = query.exception()
            if error is not None:
                raise JobError(f"Spark failed: {reason_of(error)}", "See the log above") from None
            yield from islice(iter(results.get_nowait, None), results.qsize())
            return
