"""The environment variables that all parts of the library read, and what a switch among them means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

TO_VARIABLE: Final = "QUEUEWATCH_TO"
CONSUMER_VARIABLE: Final = "QUEUEWATCH_CONSUMER"
DISABLED_VARIABLE: Final = "QUEUEWATCH_DISABLED"

_OFF: Final = frozenset(("", "0", "false", "no", "off"))


def is_on(text: str) -> bool:
    """Return whether the value of a switch turns it on: anything but nothing, `0`, `false`, `no` and `off`."""
    return text.lower() not in _OFF


def is_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment turns telemetry off."""
    return is_on(environment.get(DISABLED_VARIABLE, ""))
