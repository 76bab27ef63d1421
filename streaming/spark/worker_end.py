"""Lets Spark's Python workers end without a traceback when Java has gone."""

from __future__ import annotations

import sys
import traceback
from typing import Any

_print_exc = traceback.print_exc


def end_quietly() -> None:
    """Called as a task begins. At a stop Java and the workers end side by side. A worker that finds its socket closed before it
    is told to end is the last to know: PySpark's daemon would print its broken pipe over the service's own last words."""
    traceback.print_exc = _unless_java_has_gone


def _unless_java_has_gone(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        _print_exc(*arguments, **named)
