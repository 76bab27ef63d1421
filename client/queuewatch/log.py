"""The library's log records, written through the application's logging, whose errors must not reach either of them."""

from __future__ import annotations

import logging
from typing import Final

from queuewatch.signal_handlers import suppress

_log: Final = logging.getLogger("queuewatch.client")
"""It has no NullHandler: where logging is not set up, Python then shows on standard error why nothing arrives."""
_PREFIX: Final = "queuewatch: "
"""There, and in Lambda's log, a line does not contain the name of its logger."""


def log_warning(text: str, *values: object) -> None:
    """Log a warning; never raises."""
    with suppress(Exception):
        _log.warning(_PREFIX + text, *values)


def log_error(text: str, *values: object) -> None:
    """Log an error; never raises."""
    with suppress(Exception):
        _log.error(_PREFIX + text, *values)
