"""Escaping of external text for HTML and SVG. Pure."""

from __future__ import annotations

import html
import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that are invisible or change how the surrounding text reads: controls, right-to-left overrides etc."""


def escaped(value: object) -> str:
    r"""Escape text for an element or a quoted attribute. Invisible characters become escapes such as `\u202e`."""
    return html.escape("".join(_visible(c) for c in str(value)), quote=True)


def _visible(character: str) -> str:
    if (character.isascii() and character.isprintable()) or unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def shortened(text: str, most: int) -> str:
    """Shorten text to `most` characters by leaving out the middle, because the ends of an id are the most useful."""
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}…{text[-(most - 1 - front) :]}"
