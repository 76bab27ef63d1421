"""Regular expressions in the configuration, checked when it is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_TOKEN = re.compile(
    r"(?P<refused>\\[1-9ZuUN]"  # a reference to a group; \Z and \uXXXX, which RE2 writes \z and \x{XXXX}
    r"|\(\?(?:P=|<[=!]|[=!>(#]|[imsaLux-]*[aLux])"  # look-around, conditions, atomic groups, comments, Python's own flags
    r"|(?:[*+?]|\{\d*,?\d*\})\+)"  # possessive quantifiers
    r"|\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|.",
    re.DOTALL,
)
"""A part of a regular expression; `refused` is one that Python has and RE2, which Prometheus uses, has not."""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    for token in _TOKEN.finditer(text):
        if token["refused"]:
            raise ValueError(f"{text!r} is no regular expression in Prometheus, whose syntax (RE2) has no {token['refused']}")
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression as Prometheus matches it: against the whole label."""
