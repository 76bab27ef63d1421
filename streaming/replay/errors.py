"""What can keep a replay from being done."""

from __future__ import annotations


class ReplayError(Exception):
    """A replay that cannot be done: says which file or option, and what to do."""
