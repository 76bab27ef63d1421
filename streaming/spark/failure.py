"""What went wrong in a streaming query, in one line."""

from __future__ import annotations

import re
from typing import Final

_CAUSE: Final = re.compile(r"^\s*Caused by: (?:[\w.$]+\.)?([\w$]+(?::.*)?)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Unavailable|Blob)\b.*)$", re.MULTILINE)
_LONGEST: Final = 500


def reason_of(error: BaseException | None) -> str:
    """The innermost cause of a query's failure.

    Spark wraps it in a message of many lines with the whole query plan; what a person needs is the last Python
    exception or the last `Caused by`.
    """
    if error is None:
        return "it stopped without saying why"
    text = str(error)
    for pattern in (_PYTHON if "Traceback (most recent call last)" in text else _CAUSE, _CAUSE):
        found = pattern.findall(text)
        if found:
            return _short(found[-1])
    return _short(text.split("=== Streaming Query ===")[0])


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
