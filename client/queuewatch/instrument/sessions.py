"""Watches every new botocore session, including those of boto3, aiobotocore and aioboto3, and their clients."""

from __future__ import annotations

import math
import os
import sys
from typing import Any, Final

from queuewatch.environment import is_disabled
from queuewatch.log import log_warning
from queuewatch.sender import flush_all
from queuewatch.signal_handlers import raise_if_of_signal_handler
from queuewatch.sigterm import flush_before_sigterm
from queuewatch.transports.sqs import own_session
from queuewatch.watching import watch

_DEADLINE_VARIABLE: Final = "QUEUEWATCH_EXIT_DEADLINE_S"
_DEADLINE_S: Final = 2.0

_failed = False
_exit_deadline_s = _DEADLINE_S


def watch_every_session() -> None:
    """Watch all new sessions through botocore's registry of initializers. Settings come from the environment."""
    if is_disabled():
        return
    import botocore

    global _exit_deadline_s  # noqa: PLW0603 -- one per process, like the hook
    _exit_deadline_s = _deadline()
    botocore.register_initializer(_watch)
    if _exit_deadline_s > 0:
        # Now, because sessions may be made in other threads only, which cannot set a signal handler. It stays for those, although
        # everything that the application watches itself may end.
        flush_before_sigterm(flush_all, stays=True)


def _watch(session: Any) -> None:
    global _failed  # noqa: PLW0603 -- one per process, like the hook
    if _failed or getattr(own_session, "in_the_making", False):
        return
    try:
        watch(
            session,
            scope=os.environ.get("QUEUEWATCH_SCOPE") or None,
            exit_deadline_s=_exit_deadline_s,
        )
    except Exception as error:  # the application must get its session in any case
        raise_if_of_signal_handler(error)
        _failed = True
        log_warning("this process is not watched: %s", error)


def _deadline() -> float:
    text = os.environ.get(_DEADLINE_VARIABLE)
    if not text:
        return _DEADLINE_S
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if math.isfinite(given) and given >= 0:
        return given
    if sys.stderr is not None:
        sys.stderr.write(
            f"queuewatch-instrument: {_DEADLINE_VARIABLE}={text!r} is not a number of seconds; {_DEADLINE_S:g} is used\n"
        )
    return _DEADLINE_S
