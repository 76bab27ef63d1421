"""Regular expressions in the configuration, checked when it is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_TOKEN = re.compile(
    r"(?P<refused>\\[1-9ZuUN]"  # a reference to a group; \Z and \uXXXX, which RE2 writes \z and \x{XXXX}
    r"|\\[^\x00-\x7F]"
    r"|\(\?(?:P=|<[=!]|[=!>(#]|[imsaLux-]*[aLux])"  # look-around, conditions, atomic groups, comments, Python's own flags
    r"|\(\?P<\w*[^\x00-\x7F]\w*>"
    r"|(?:[*+?]|\{\d*,?\d*\})\+)"  # possessive quantifiers
    r"|(?P<otherwise>\{,\d*\})"  # RE2 reads it as text
    r"|(?P<repeated>\{(?:\d+,)?(?P<most>\d+),?\})"
    r"|\\.|(?P<set>\[\^?\]?(?:\\.|\[:\w+:\]|[^\\\]])*\])|.",
    re.DOTALL,
)
"""A part of a regular expression. `refused` is one that Python has and RE2, which Prometheus uses, has not."""
_IN_SET = re.compile(r"(?P<refused>\\(?:[1-9uUNb]|[^\x00-\x7F]))|(?P<otherwise>\[:\w+:\])|\\.|.", re.DOTALL)
_MOST_REPEATED = 1_000


def _pattern(text: str) -> str:
    for token in _TOKEN.finditer(text):
        refused = token["repeated"] if int(token["most"] or 0) > _MOST_REPEATED else None
        for part in (token, *_IN_SET.finditer((token["set"] or "")[1:])):
            refused = refused or part["refused"]
            if part["otherwise"]:
                raise ValueError(f"{text!r}: Prometheus reads {part['otherwise']} in another way than queuewatch; write it out")
        if refused:
            raise ValueError(f"{text!r} is no regular expression in Prometheus, whose syntax (RE2) has no {refused}")
    if (most := _most_repeated(text)) > _MOST_REPEATED:
        raise ValueError(
            f"{text!r} is no regular expression in Prometheus: repeats within repeats count together there (RE2), {most:,} here "
            f"and {_MOST_REPEATED:,} at most"
        )
    # Afterwards, because it warns of a class such as [:digit:].
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _most_repeated(text: str) -> int:
    """Return how often a part of the expression is repeated at most, by `{n}` of it and of the groups that it is in.

    What is repeated `{0}` times is absent, and does not count in the groups around it.
    """
    groups, last, most = [1], 1, 1
    for token in _TOKEN.finditer(text):
        part = token.group()
        if token["repeated"]:
            last *= int(token["most"]) or int(part.endswith(",}"))  # {0,} is *
            most = max(most, last)
        elif part not in ("*", "+", "?"):
            groups[-1] = max(groups[-1], last)
            last = 1
            if part == "(":
                groups.append(1)
            elif part == ")" and len(groups) > 1:
                last = groups.pop()
    return most


Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression as Prometheus matches it: against the whole label."""
