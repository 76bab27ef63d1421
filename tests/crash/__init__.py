"""Every write, fsync, rename, deletion and send of a run fails or is interrupted by a kill, one after another."""
