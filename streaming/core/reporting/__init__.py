"""Report the state of a shard, and merge the reports of all shards."""
