"""Events as columns: decoded, ordered, deduplicated and split by shard."""
