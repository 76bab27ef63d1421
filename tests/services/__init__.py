"""The real things the tests run against, each started as a local process on free ports."""
