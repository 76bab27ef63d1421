"""Sends buffered events before SIGTERM ends a process that does not handle it.

Without a handler the signal ends the process at once, and the last fraction of a second of telemetry is lost. This handler is set
only if the default is in force, and only in the main thread. It ends the process like the default: by the same signal, after at
most the senders' exit deadline. A second SIGTERM ends it at once. If the application sets its own handler, before or after,
nothing is changed: it may call `flush` there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_flush_all: Callable[[], object] | None = None
_stays = False


def flush_before_sigterm(flush_all: Callable[[], object], *, stays: bool = False) -> bool:
    """Call `flush_all` before SIGTERM's default action; return False if SIGTERM has a handler already.

    `flush_all` must have its own time limit and never raise. If it `stays`, `leave_sigterm_alone` has no effect any more.
    """
    global _flush_all, _stays  # noqa: PLW0603 -- one per process, like signal handlers
    _stays = _stays or stays
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
    """Undo `flush_before_sigterm`, unless it is to stay or another handler has been set."""
    if _stays:
        return
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(signal_number: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal_number) is not _end:
        return  # called by a handler that replaced this one; without this one it would have nothing to call
    signal.signal(signal_number, signal.SIG_DFL)
    try:
        if _flush_all is not None:
            _flush_all()
    finally:
        os.kill(os.getpid(), signal_number)
