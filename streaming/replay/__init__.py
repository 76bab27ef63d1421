"""Recorded events through the same tracking and judging as a live run, on event time."""
