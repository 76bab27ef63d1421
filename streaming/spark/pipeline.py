"""The data flow: read → decode → route → track → merge → judge → publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.spark_files import SparkFiles
from streaming.checkpoint.state_files import StateKeeper
from streaming.config.source import Sources
from streaming.core.settings import Settings
from streaming.folder import local_folder
from streaming.spark.decode import PACKET_SCHEMA, decode_and_route
from streaming.spark.hadoop_folder import path_for_spark
from streaming.spark.readers.kafka import Topics, read_kafka
from streaming.spark.readers.spool import read_spool, spool_path
from streaming.spark.readers.ticks import read_ticks
from streaming.spark.spool_batches import lanes_of
from streaming.spark.stateful_shard import REPORT_SCHEMA, STATE_SCHEMA, track_shard


def start(
    spark: SparkSession,
    sources: Sources,
    topics: Topics | None,
    settings: Settings,
    publish: Callable[[DataFrame, int], None],
    keeper: StateKeeper,
    *,
    shards: int,
    trigger_interval_s: float,
    checkpoint: str,
    starting: Mapping[tuple[str, int], int] | None = None,
) -> StreamingQuery:
    """Start the streaming query; `publish` is a `Publisher`.

    `topics` is the survey of the Kafka source, if there is one; `starting` holds the offsets at which a new checkpoint begins.
    """
    keys = shard_keys(shards)
    records = read(spark, sources, topics, starting)
    packets = decoded(records, keys, settings)
    return (
        tracked(packets, settings, keeper)
        .writeStream.foreachBatch(_flushing(checkpoint, publish))  # merge → judge → publish
        .outputMode("update")
        .trigger(processingTime=f"{round(trigger_interval_s * 1000)} milliseconds")
        .option("checkpointLocation", path_for_spark(checkpoint))
        .start()
    )


def _flushing(checkpoint: str, publish: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Return `publish` with a flush of a local checkpoint before it.

    What a batch announces is known by its number: it must read the same when it runs again, even after a power failure.
    """
    local = local_folder(checkpoint)
    if local is None:
        return publish
    files = SparkFiles(local.path)

    def flushed(batch: DataFrame, batch_id: int) -> None:
        files.flush()
        publish(batch, batch_id)

    return flushed


def read(
    spark: SparkSession, sources: Sources, topics: Topics | None, starting: Mapping[tuple[str, int], int] | None = None
) -> DataFrame:
    """Read whole records of every configured source, and ticks. A spool folder on this machine is read by the ticks' tasks."""
    in_tasks = sources.spool is not None and spool_path(sources.spool) is not None
    streams = [read_ticks(spark, lanes_of(spark.sparkContext.defaultParallelism) if in_tasks else 1)]
    if sources.kafka is not None and topics is not None:
        streams.append(read_kafka(spark, sources.kafka, topics, starting))
    if sources.spool is not None and not in_tasks:
        streams.append(read_spool(spark, sources.spool))
    return reduce(DataFrame.union, streams)


def decoded(records: DataFrame, keys: list[int], settings: Settings) -> DataFrame:
    """Decode to one packed row per shard, step and task."""
    return records.mapInArrow(decode_and_route(keys, settings), PACKET_SCHEMA)


def tracked(packets: DataFrame, settings: Settings, keeper: StateKeeper) -> DataFrame:
    """Track to one report per shard and step; the state of each shard continues from batch to batch."""
    stage = track_shard(settings, keeper)
    return packets.groupBy("shard").applyInPandasWithState(
        stage, REPORT_SCHEMA, STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
    )
