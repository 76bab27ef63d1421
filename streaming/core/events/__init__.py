"""Events as columns: decoded, ordered and split by shard."""
