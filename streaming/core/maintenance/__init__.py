"""Change a shard's state as a whole: evict what no longer counts, rewind its times, spread it over other shards."""
