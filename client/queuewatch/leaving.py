"""Sends what is buffered before SIGTERM ends a process that has no handler of its own for it.

Without a handler the signal ends the process at once, and at most the last fraction of a second of telemetry with it.
A handler of ours is set only where the default is in force, only in the main thread, and it ends the process as the
default would: by the same signal, after at most the senders' exit deadline. A second SIGTERM does so at once. An
application that sets a handler of its own, before or after, is left alone: it may call `flush` there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_flush_all: Callable[[], object] | None = None


def flush_before_sigterm(flush_all: Callable[[], object]) -> bool:
    """Have `flush_all` called before the default of SIGTERM; False where that is not ours to do.

    `flush_all` must keep a time of its own and never raise.
    """
    global _flush_all
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    try:
        signal.signal(signal.SIGTERM, _end)
    except ValueError:  # a sub-interpreter has no signals
        return False
    _flush_all = flush_all
    return True


def leave_sigterm_alone() -> None:
    """Undo `flush_before_sigterm`, unless somebody has set another handler."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(signal_number: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal_number) is not _end:
        return  # a handler set later calls the one before it, where the default would have been nothing to call
    signal.signal(signal_number, signal.SIG_DFL)
    try:
        if _flush_all is not None:
            _flush_all()
    finally:
        os.kill(os.getpid(), signal_number)
