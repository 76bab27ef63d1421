"""Patterns of file names mean what they mean in Hadoop's file systems."""

from __future__ import annotations

import pytest

from streaming.spool.pattern import matcher


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.{ndjson,json}", ["a.ndjson", "b.json"], ["a.ndjson,json", "json"]),
        ("{a,b}{,c}.json", ["a.json", "bc.json"], ["c.json", "ab.json"]),
        ("*.{nd{json,arrow},json}", ["a.ndjson", "a.ndarrow", "a.json"], ["a.arrow", "a.nd", "a.json}"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["b", "ad", "bd}"]),
        ("{a,b", ["{a,b"], ["a", "b"]),
        ("[^a]*", ["ba"], ["ab"]),
    ],
)
def test_braces_hold_alternatives_also_in_one_another(pattern: str, matching: list[str], others: list[str]) -> None:
    """A file that does not match is never read, so its events are lost without a word."""
    matches = matcher(pattern)
    assert [name for name in (*matching, *others) if matches(name)] == matching
