"""Benchmarks of the whole job and of its parts: `python -m tests.benchmarks` prints them as a table."""
