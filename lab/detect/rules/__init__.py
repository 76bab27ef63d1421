"""The compared rules, one file each, with the source of each."""
