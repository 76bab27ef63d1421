"""The laboratory: simulated queues with known faults, and how well queuewatch detects them.

It is not part of the wheel. `python -m lab --help`, or `make lab`.
"""
