"""The laboratory: simulated queues with known faults, and how well queuewatch tells what is wrong with them.

Not part of the wheel. `python -m lab --help`, or `make lab`.
"""
