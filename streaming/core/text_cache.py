"""Cache what is made of texts that repeat, but not of long ones: a few thousand of those would fill gigabytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

Text = TypeVar("Text", str, bytes)
Made = TypeVar("Made")

MOST_TEXT: Final = 1 << 23
"""Characters or bytes of all texts of one cache. What is made of them takes some ten times as much."""


def cached(maxsize: int) -> Callable[[Callable[[Text], Made]], Callable[[Text], Made]]:
    """Keep the results of a pure function of one text for the `maxsize` texts used last, except those longer than the average."""
    longest = MOST_TEXT // maxsize

    def decorate(make: Callable[[Text], Made]) -> Callable[[Text], Made]:
        known = functools.lru_cache(maxsize)(make)

        @functools.wraps(make)
        def made_of(text: Text) -> Made:
            return known(text) if len(text) <= longest else make(text)

        return made_of

    return decorate
