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
    """Yield a pattern for each choice between its braces, which may have braces in them."""
    opens = pattern.find("{")
    depth, begins, choices = 0, opens + 1, list[str]()
    for at, letter in enumerate(pattern[opens:], start=opens) if opens >= 0 else ():
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if (letter == "," and depth == 1) or depth == 0:
            choices.append(pattern[begins:at])
            begins = at + 1
        if depth == 0:
            for choice in choices:
                yield from _expanded(pattern[:opens] + choice + pattern[at + 1 :])
            return
    yield pattern
