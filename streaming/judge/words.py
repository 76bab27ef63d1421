"""Words of a finding's sentence."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Format a count with its noun: `1 message`, `2 messages`. `nouns` is the plural where that does not end in a mere s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"
