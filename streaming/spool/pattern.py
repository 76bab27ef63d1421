"""Patterns of file names, as in Hadoop's file systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate


def matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a shell pattern with alternatives in braces."""
    alternatives = [re.compile(translate(one.replace("[^", "[!"))) for one in _expanded(pattern)]
    return lambda name: any(one.match(name) for one in alternatives)


def _expanded(pattern: str) -> Iterator[str]:
    opens = pattern.find("{")
    closes = pattern.find("}", opens)
    if opens < 0 or closes < 0:
        yield pattern
        return
    for choice in pattern[opens + 1 : closes].split(","):
        yield from _expanded(pattern[:opens] + choice + pattern[closes + 1 :])
