"""Shard keys that Spark's hash partitioning spreads evenly: shard i is processed by partition i."""

from __future__ import annotations

from streaming.spark.internals import spark_hash


def shard_keys(shards: int) -> list[int]:
    """Return one key per shard, with `pmod(hash(key), shards)` equal to the shard's index.

    Keys 0, 1, 2… would leave some partitions empty and give others two.
    """
    keys: dict[int, int] = {}
    candidate = 0
    while len(keys) < shards:
        keys.setdefault(spark_hash(candidate) % shards, candidate)
        candidate += 1
    return [keys[partition] for partition in range(shards)]


def shard_indexes(shards: int) -> dict[int, int]:
    """Return each shard's index by its key: what people are shown."""
    return {key: index for index, key in enumerate(shard_keys(shards))}
