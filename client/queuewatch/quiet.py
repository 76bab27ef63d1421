"""Keeps the logs of the libraries that carry telemetry out of the application's.

kafka-python and botocore log every attempt at a broker that is away. The sender reports that itself, once a minute. Only
records made in our own threads are dropped: an application that uses the same library keeps all of its own.
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
    """Drop what the loggers of a library, as far as they are made by now, log in the threads of these names."""
    _our_threads.update(thread_names)
    # A filter holds for its own logger, not for those below it.
    for name in [library, *list(logging.Logger.manager.loggerDict)]:
        if name == library or name.startswith(f"{library}."):
            logging.getLogger(name).addFilter(_filter)
