"""Ticks keep batches going, and bring time to every shard, when no event arrives."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def read_ticks(spark: SparkSession, partitions: int = 1) -> DataFrame:
    """Return an empty record without an origin, once a second.

    After an outage there is one for each missed second; the decode stage treats many like one. `partitions`: the number of tasks.
    They are the batch's first tasks and also read the spool folder, so most get no tick.
    """
    nothing = [
        fn.lit(None).cast(kind).alias(name) for name, kind in (("value", "binary"), ("origin", "string"), ("position", "long"))
    ]
    return spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", partitions).load().select(*nothing)
