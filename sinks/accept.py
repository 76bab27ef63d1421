"""Read what a client accepts."""

from __future__ import annotations


def quality(text: str) -> float:
    """Return the value of a parameter `q` of an Accept header; one that is no number accepts nothing."""
    try:
        return float(text)
    except ValueError:
        return 0.0
