"""What is made of a text is kept, unless the text is long."""

from __future__ import annotations

import pytest

from streaming.core.text_cache import MOST_TEXT, cached


@pytest.mark.parametrize(("length", "times"), [(0, 1), (MOST_TEXT // 4, 1), (MOST_TEXT // 4 + 1, 3)])
def test_only_texts_of_the_average_length_or_less_are_kept(length: int, times: int) -> None:
    """So all that is kept has at most `MOST_TEXT` characters."""
    asked: list[str] = []

    @cached(maxsize=4)
    def size(text: str) -> int:
        asked.append(text)
        return len(text)

    assert [size("x" * length) for _ in range(3)] == [length] * 3
    assert len(asked) == times


def test_the_texts_used_last_are_kept() -> None:
    asked: list[bytes] = []

    @cached(maxsize=2)
    def size(text: bytes) -> int:
        asked.append(text)
        return len(text)

    for text in (b"a", b"b", b"a", b"c", b"a", b"b"):
        size(text)
    assert asked == [b"a", b"b", b"c", b"b"]
