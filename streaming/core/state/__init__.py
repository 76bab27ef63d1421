"""The state a shard keeps for every message and queue, as columns."""
