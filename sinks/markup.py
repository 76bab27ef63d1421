"""Text from outside on its way into HTML and SVG. Pure."""

from __future__ import annotations

import html
import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories that a reader cannot see, or that change how the text around them reads: controls, right-to-left overrides, halves
of surrogate pairs, line separators."""


def escaped(value: object) -> str:
    """Text for an element or a quoted attribute. What cannot be seen is written as an escape, such as `\\u202e`."""
    return html.escape("".join(_visible(c) for c in str(value)), quote=True)


def _visible(character: str) -> str:
    if (character.isascii() and character.isprintable()) or unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def shortened(text: str, most: int) -> str:
    """At most `most` characters, the middle left out: the beginning and the end of an id tell most."""
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}…{text[-(most - 1 - front) :]}"
