"""Keeps the log records of the telemetry libraries out of the application's log.

kafka-python and botocore log every attempt to reach an unavailable broker. The sender reports that itself, once a minute. Only
records from the sender's threads are dropped: an application that uses the same library keeps all of its own records.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

_our_threads: Final[set[str]] = set()


class _NotOurs(logging.Filter):
    def filter(self, _record: logging.LogRecord) -> bool:
        return threading.current_thread().name not in _our_threads


_filter: Final = _NotOurs()


def quiet(library: str, *thread_names: str) -> None:
    """Drop records that a library's existing loggers create in the threads with these names."""
    _our_threads.update(thread_names)
    # A filter applies to its own logger, not to child loggers.
    for name in [library, *list(logging.Logger.manager.loggerDict)]:
        if name == library or name.startswith(f"{library}."):
            logging.getLogger(name).addFilter(_filter)
