"""Telemetry of AWS Lambda functions that SQS invokes, without code changes.

The function's handler setting becomes `queuewatch.aws_lambda.handler`, and `QUEUEWATCH_LAMBDA_HANDLER` names the
function's own handler. See docs/lambda.md.
"""

from __future__ import annotations

from typing import Any

__all__ = ["handler", "wrap"]


def wrap(original: Any) -> Any:
    """Wrap a handler in code, with the settings of the environment; the handler itself when telemetry is off."""
    from queuewatch.aws_lambda.wrapper import wrap_handler

    return wrap_handler(original)


def __getattr__(name: str) -> Any:
    # Loaded when the runtime asks for it: importing this package must not import the function.
    if name != "handler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from queuewatch.aws_lambda.original import load_original

    found = wrap(load_original())
    globals()["handler"] = found
    return found
