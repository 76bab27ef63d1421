"""The time of a batch, and ticks that bring it to every shard though no event arrives."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from streaming.spark.decode import empty_packet_blob


def batch_time_ms() -> Column:
    """The batch's own timestamp in epoch milliseconds.

    Spark logs it with the batch's offsets: a batch that runs again has the same one.
    """
    return fn.unix_millis(fn.current_timestamp())


def tick_packets(spark: SparkSession, keys: list[int]) -> DataFrame:
    """An empty packet for every shard, once a second, in the columns of the decode stage.

    They do not pass through Python.
    """
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return ticks.select(
        fn.explode(fn.array(*[fn.lit(key) for key in keys])).alias("shard"),
        batch_time_ms().alias("step_ms"),
        fn.lit(-1).alias("part"),
        fn.lit(empty_packet_blob()).alias("packet"),
    )
