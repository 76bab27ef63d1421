"""Each shard key hashes to its own partition in Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from streaming.checkpoint.shards import shard_keys, spark_hash


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 16, 64, 256])
def test_every_shard_has_its_own_key(shards: int) -> None:
    """Keys are in the order of their partitions and follow the rule."""
    keys = shard_keys(shards)
    assert [spark_hash(key) % shards for key in keys] == list(range(shards))


def test_the_keys_of_two_shards_never_change() -> None:
    """Checkpoints contain them."""
    assert shard_keys(1) == [0]
    assert shard_keys(2) == [2, 0]
    assert shard_keys(4) == [12, 6, 2, 0]


def test_grouping_by_shard_uses_every_partition(spark: SparkSession) -> None:
    """This is the purpose of the keys: no partition is idle and none has two shards."""
    frame = spark.createDataFrame([(key,) for key in shard_keys(8)], "shard int").repartition(8, "shard")
    placed = {row["shard"]: row["partition"] for row in frame.withColumn("partition", fn.spark_partition_id()).collect()}
    assert [placed[key] for key in shard_keys(8)] == list(range(8))
