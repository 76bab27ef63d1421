"""Every write, fsync, rename, deletion and send of a run is failed or killed at, one after another."""
