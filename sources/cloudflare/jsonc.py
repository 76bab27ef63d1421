"""JSON with comments and trailing commas, as Wrangler reads it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*")'  # whatever looks like a comment in it is none
    r"|(?P<comment>//[^\n]*|/\*(?:(?!\*/).)*\*/)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL,
)


def loads(text: str) -> Any:
    """Parse the document. Raises `ValueError` with line and column of the original text."""
    try:
        return json.loads(_plain(text.removeprefix("\ufeff")))
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _plain(text: str) -> str:
    """Blank out comments and trailing commas: every line and column stays where it was."""
    pieces: list[str] = []
    before, comma = "", None
    for token in _TOKEN.finditer(text):
        piece = token.group()
        if token.lastgroup == "comment":
            piece = "".join(c if c == "\n" else " " for c in piece)
        elif token.lastgroup != "space":
            if piece in ("}", "]") and comma is not None:
                pieces[comma] = " "
            # Only a comma after a value can be a trailing one.
            comma = len(pieces) if piece == "," and before not in ("", "{", "[", ",", ":") else None
            before = piece
        pieces.append(piece)
    return "".join(pieces)
