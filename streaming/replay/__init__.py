"""Replay of recorded events with the same tracking and judging as a live run, on event time."""
