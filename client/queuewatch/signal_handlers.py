"""Tells errors of the library, which are swallowed, from exceptions that the application's signal handlers raise within it.

A time limit, such as Celery's soft one or RQ's, is an exception that a signal handler raises in whatever code runs at that
moment, the library's included. There it must pass, or the application would never see its limit.
"""

from __future__ import annotations

import contextlib
import functools
import signal
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType


def raise_if_of_signal_handler(error: BaseException) -> None:
    """Raise what a signal handler raised, if that is this error or the cause of it."""
    # The first function is that which caught the error. Usually it is the only one, which saves the search for the handlers.
    if error.__traceback__ is None or error.__traceback__.tb_next is None:
        return
    codes = {_code_of(signal.getsignal(number)) for number in range(1, signal.NSIG)}
    raised: BaseException | None = error
    while raised is not None:
        frames = [frame for frame, _ in walk_tb(raised.__traceback__)]
        if any(frame.f_code in codes and _has_interrupted(frame) for frame in frames):
            raise raised
        # An exception that is handled meanwhile may lead to another one. But what the application itself is handling when it
        # calls the library is no cause: that was caught in a function that is not among these.
        cause = raised.__context__
        raised = cause if cause and cause.__traceback__ and cause.__traceback__.tb_frame in frames else None


class suppress(contextlib.suppress):  # noqa: N801 -- as the class that it replaces
    """`contextlib.suppress`, except for what a signal handler raised."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        suppressed = bool(super().__exit__(kind, error, traceback))
        if suppressed and error is not None:
            raise_if_of_signal_handler(error)
        return suppressed


def _has_interrupted(frame: FrameType) -> bool:
    """Return whether a call is that of a handler: it is given the frame that it interrupts, which is the one that called it.

    Functions of the same code may be called otherwise, as all that one decorator wraps.
    """
    values = list(frame.f_locals.values())
    values += [part for value in values if isinstance(value, tuple) for part in value]
    return any(value is frame.f_back for value in values)


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a handler's Python function, None if it has none."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    code = getattr(handler, "__code__", None)  # a bound method has that of its function
    return code if code is not None else getattr(type(handler).__call__, "__code__", None)
