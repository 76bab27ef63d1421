"""The comparison of rules, each tried on what its own source says of it."""
