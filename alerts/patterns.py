"""Regular expressions in the configuration, checked when it is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression as Prometheus matches it: against the whole label."""
