"""Finds the function's own handler, and fails in the same way as the runtime without the wrapper."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

HANDLER_VARIABLE: Final = "QUEUEWATCH_LAMBDA_HANDLER"
_OURS: Final = "queuewatch.aws_lambda.handler"


class HandlerNotConfigured(Exception):
    """The environment does not name the function's own handler."""


def load_original() -> Any:
    """Return the handler named in `QUEUEWATCH_LAMBDA_HANDLER`, such as `app.handler`.

    Raises `HandlerNotConfigured`, and whatever the runtime interface client raises for a missing handler.
    """
    name = os.environ.get(HANDLER_VARIABLE, "").strip()
    if not name:
        raise HandlerNotConfigured(f"{HANDLER_VARIABLE} is not set; set it to the function's own handler, such as app.handler")
    if name == _OURS:
        raise HandlerNotConfigured(f"{HANDLER_VARIABLE} names the wrapper itself; set it to the function's own handler")
    try:
        from awslambdaric.bootstrap import _get_handler
    except ImportError:  # another runtime, or a test
        return _load(name)
    return _get_handler(name)


def _load(name: str) -> Any:
    module, separator, attribute = name.rpartition(".")
    if not separator:
        raise HandlerNotConfigured(f"{HANDLER_VARIABLE}={name!r} is not a handler; use module.function")
    return getattr(importlib.import_module(module.replace("/", ".")), attribute)
