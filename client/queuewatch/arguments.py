"""Checks names and the arguments of `watch` and `PullConsumer`: later, a wrong one would cost events without a word."""

from __future__ import annotations

import re
import threading
from typing import Any, Final

LONGEST_NAME: Final = 512
"""Characters in the name of a queue, a consumer or a scope that the service accepts."""
LONGEST_WAIT_S: Final = threading.TIMEOUT_MAX
"""The standard library's limit, some hundred years; a longer wait is an `OverflowError`."""
_MAY_BE_INFINITE: Final = frozenset(("exit_deadline_s",))
_ATTRIBUTE: Final = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")


def check_arguments(
    names: dict[str, Any], counts: dict[str, Any], seconds: dict[str, Any], lineage_attribute: str | None = None
) -> None:
    """Raise `TypeError` or `ValueError` for the first wrong argument, with its name and what to give instead."""
    for name, value in names.items():
        check_name(name, value)
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}: give an integer of 1 or more")
        if value < 1:
            raise ValueError(f"{name} is {value}: give 1 or more")
    for name, value in seconds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}: give a number of seconds, 0 or more")
        if not value >= 0:
            raise ValueError(f"{name} is {value}: give a number of seconds, 0 or more")
        if value > LONGEST_WAIT_S and name not in _MAY_BE_INFINITE:
            raise ValueError(f"{name} is {value}: give a finite number of seconds, at most {LONGEST_WAIT_S:.0f}")
    check_attribute("lineage_attribute", lineage_attribute)


def check_name(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` if the service would refuse the name of a queue, a consumer or a scope."""
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: give a string")
    if len(value) > LONGEST_NAME:
        raise ValueError(f"{name} has {len(value)} characters: give at most {LONGEST_NAME}")
    if not is_text(value):
        raise ValueError(f"{name} is {value!r}: half of a surrogate pair cannot be sent; give text that UTF-8 can encode")


def check_attribute(name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` if SQS would refuse the name of a message attribute."""
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: give the name of a message attribute")
    if not _ATTRIBUTE.fullmatch(value):
        raise ValueError(
            f"{name} is {value!r}: a message attribute of SQS has 1 to 256 letters, digits, `_`, `-` "
            "and single dots inside, and does not begin with AWS. or Amazon."
        )


def is_text(value: str) -> bool:
    """Whether UTF-8 can encode a string."""
    return all(not "\ud800" <= char <= "\udfff" for char in value)
