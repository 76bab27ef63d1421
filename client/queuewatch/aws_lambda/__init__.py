"""Telemetry of AWS Lambda functions that SQS invokes, without code changes.

The function's handler setting becomes `queuewatch.aws_lambda.handler`, and `QUEUEWATCH_LAMBDA_HANDLER` names the
function's own handler. See docs/lambda.md.
"""

from __future__ import annotations

from typing import Any

__all__ = ["handler", "wrap"]


def wrap(original: Any) -> Any:
    """Wrap a handler in code, with settings from the environment. If telemetry is off, return the handler itself."""
    from queuewatch.aws_lambda.wrapper import wrap_handler

    return wrap_handler(original)


def __getattr__(name: str) -> Any:
    # Loaded only when the runtime looks it up, because importing this package must not import the function.
    if name != "handler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from queuewatch.aws_lambda.original import load_original

    try:
        found = wrap(load_original())
    except AttributeError as error:
        # The runtime would take it for a missing handler, and not log the error of the function.
        raise _of_the_function(error) from None
    globals()["handler"] = found
    return found


def _of_the_function(error: AttributeError) -> Exception:
    """Return an error that is logged like this one, with its type's name, text and traceback, but is no AttributeError."""
    alike: type[Exception] = type(type(error).__name__, (Exception,), {})
    return alike(str(error)).with_traceback(error.__traceback__)
