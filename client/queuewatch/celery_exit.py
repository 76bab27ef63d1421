"""Sends buffered events before a child of a Celery worker ends.

Such a child ends when it has done its number of tasks, or with its worker, and always by `os._exit`, which runs no exit handlers.
Before that, Celery sends its own signal `worker_process_shutdown`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from queuewatch.signal_handlers import suppress


def flush_before_celery_exit(flush_all: Callable[[], object]) -> None:
    """Call `flush_all` before children of a Celery worker end, if this is one.

    `flush_all` must have its own time limit and never raise.
    """
    signals = sys.modules.get("celery.signals")
    if signals is None:
        return

    def flush(**_: object) -> None:
        flush_all()

    with suppress(Exception):  # of a Celery that is imported only in part
        signals.worker_process_shutdown.connect(flush, weak=False, dispatch_uid="queuewatch")
