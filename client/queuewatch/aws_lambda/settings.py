"""The wrapper's settings, all from the environment. An invalid value never prevents the function from running."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from queuewatch.consumer_name import name_of_environment
from queuewatch.environment import CONSUMER_VARIABLE, TO_VARIABLE, is_disabled, is_on
from queuewatch.log import log_error

Value = TypeVar("Value")


@dataclass(frozen=True)
class Settings:
    """The settings of one function. `to` is None when telemetry is off."""

    to: str | None
    consumer: str
    scope: str | None = None
    send_ms: float = 50.0
    """How long an invocation may wait for its telemetry; the rest is sent with the next invocation."""
    early_ms: float = 1000.0
    """If a handler runs longer, its receives are reported while it runs."""
    timeout_margin_ms: float = 200.0
    """How long before its deadline an invocation that still runs is reported as timed out."""
    visibility_timeout_s: float | None = None
    """The queue's visibility timeout, which Lambda does not pass to the function."""
    report_batch_item_failures: bool = True
    """Whether the event source mapping has ReportBatchItemFailures, which Lambda does not pass to the function either."""


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; for an invalid value an error is logged and the default is used."""

    def read(name: str, convert: Callable[[str], Value], default: Value) -> Value:
        text = environment.get(name, "").strip()
        if not text:
            return default
        try:
            return convert(text)
        except ValueError:
            log_error("%s=%s is invalid; using %s", name, text, default)
            return default

    return Settings(
        to=None if is_disabled(environment) else environment.get(TO_VARIABLE) or None,
        consumer=name_of_environment(CONSUMER_VARIABLE, environment) or environment.get("AWS_LAMBDA_FUNCTION_NAME") or "lambda",
        scope=name_of_environment("QUEUEWATCH_SCOPE", environment) or None,
        send_ms=read("QUEUEWATCH_LAMBDA_SEND_MS", _not_negative, 50.0),
        early_ms=read("QUEUEWATCH_LAMBDA_EARLY_MS", _not_negative, 1000.0),
        timeout_margin_ms=read("QUEUEWATCH_LAMBDA_TIMEOUT_MARGIN_MS", _not_negative, 200.0),
        visibility_timeout_s=read("QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S", _optional, None),
        report_batch_item_failures=read("QUEUEWATCH_LAMBDA_REPORT_BATCH_ITEM_FAILURES", is_on, True),
    )


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def _optional(text: str) -> float | None:
    return _not_negative(text)
