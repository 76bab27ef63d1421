"""Shard keys that Spark's hash partitioning spreads evenly: shard i is processed by partition i."""

from __future__ import annotations

from typing import Final

_WORD: Final = 0xFFFFFFFF
# Spark's seed for hash partitioning; it can never change, because tables on disk depend on it.
_SEED: Final = 42


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


def spark_hash(value: int) -> int:
    """Return Spark SQL's `hash()` of a 32-bit integer: Murmur3, signed. A shuffle's partition is this modulo their number."""
    mixed = _rotate(value * 0xCC9E2D51, 15) * 0x1B873593 & _WORD
    mixed = _rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _WORD
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotate(word: int, left: int) -> int:
    word &= _WORD
    return (word << left | word >> (32 - left)) & _WORD
