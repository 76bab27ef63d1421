"""Deliver results to their destinations, each independently and without blocking a batch."""
