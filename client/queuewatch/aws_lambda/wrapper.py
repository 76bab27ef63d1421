"""The wrapped handler: calls the function's own handler and reports the outcome of the batch."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.aws_lambda.outcome import RETURNED, Outcome, raised, returned, timed_out
from queuewatch.aws_lambda.posting import transport_for
from queuewatch.aws_lambda.records import Delivery, delivery_of
from queuewatch.aws_lambda.settings import Settings, settings_from
from queuewatch.aws_lambda.watchdog import Watchdog
from queuewatch.clock import now_ms
from queuewatch.environment import TO_VARIABLE
from queuewatch.log import log_error, log_warning
from queuewatch.signal_handlers import raise_if_of_signal_handler

Handler = Callable[[Any, Any], Any]


def wrap_handler(original: Handler, settings: Settings | None = None) -> Handler:
    """Return the handler for the runtime, or `original` itself if telemetry is off or has no usable destination."""
    settings = settings or settings_from()
    if settings.to is None:
        return original
    try:
        carrier = Carrier(transport_for(settings.to))
    except Exception as error:  # a typo in a deployment must not prevent the function from running
        log_error("%s: %s; no telemetry is sent", TO_VARIABLE, error)
        return original
    wrapper = Wrapper(original, settings, carrier)

    def handler(event: Any, context: Any) -> Any:
        return wrapper(event, context)

    with contextlib.suppress(Exception):  # a callable object may have no name
        functools.update_wrapper(handler, original)
        handler.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return handler


class Wrapper:
    """Calls `original` for every event. Its result and exceptions pass through unchanged; the wrapper itself raises nothing."""

    def __init__(self, original: Handler, settings: Settings, carrier: Carrier) -> None:
        self._original = original
        self._settings = settings
        self._carrier = carrier
        self._watchdog = Watchdog()

    def __call__(self, event: Any, context: Any) -> Any:
        """Handle one invocation."""
        invocation = self._begin(event, context)
        if invocation is None:
            return self._original(event, context)
        try:
            result = self._original(event, context)
        except BaseException as error:
            invocation.end(raised(error))
            raise
        invocation.end_with(result)
        return result

    def _begin(self, event: Any, context: Any) -> _Invocation | None:
        try:
            delivery = delivery_of(
                event,
                request_id=str(getattr(context, "aws_request_id", "")),
                consumer=self._settings.consumer,
                began_at=now_ms(),
                scope=self._settings.scope,
                visibility_timeout_s=self._settings.visibility_timeout_s,
            )
            if delivery is None:
                return None
            return _Invocation(delivery, context, self._settings, self._carrier, self._watchdog)
        except Exception as error:
            raise_if_of_signal_handler(error)
            log_warning("telemetry of an invocation is lost, the invocation is not affected: %r", error)
            return None


class _Invocation:
    """One batch in progress. None of its steps raises, not even what a signal handler raises: the batch has its outcome."""

    def __init__(self, delivery: Delivery, context: Any, settings: Settings, carrier: Carrier, watchdog: Watchdog) -> None:
        self._delivery = delivery
        self._settings = settings
        self._carrier = carrier
        self._watchdog = watchdog
        self._reported_received = False
        self._reported_timeout = False
        now_s = time.monotonic()
        due = [(now_s + settings.early_ms / 1000, self._early)]
        left_ms = _left_ms(context)
        self._deadline_at = now_ms() + int(left_ms or 0)
        if left_ms is not None:
            due.append((now_s + max(0.0, left_ms - settings.timeout_margin_ms) / 1000, self._nearly_out_of_time))
        self._armed = watchdog.arm(due)

    def end_with(self, result: Any) -> None:
        """Record that the handler returned."""
        try:
            outcome = self._judge(result)
        except Exception as error:
            log_warning("telemetry of an invocation is lost, the invocation is not affected: %r", error)
            self._watchdog.disarm(self._armed)
            return
        self.end(outcome)

    def end(self, outcome: Outcome) -> None:
        """Report the outcome, and wait for the report within the time limit."""
        try:
            self._watchdog.disarm(self._armed)
            self._report_received()
            if not (self._reported_timeout and outcome.whole):
                self._report(outcome)
            self._carrier.deliver(self._settings.send_ms / 1000)
        except Exception as error:
            log_warning("telemetry of an invocation is lost, the invocation is not affected: %r", error)

    def _judge(self, result: Any) -> Outcome:
        if result is None:
            return RETURNED
        try:
            response = _marshal(result)
        except Exception as error:
            raise_if_of_signal_handler(error)  # it says nothing about the result
            return raised(error)  # the runtime will fail the invocation
        reports = self._settings.report_batch_item_failures
        return returned(response, self._delivery.message_ids, reports_failures=reports)

    def _early(self) -> None:
        self._report_received()
        self._start()

    def _nearly_out_of_time(self) -> None:
        """Report a timeout, because the process may be killed next. If the handler still returns, its outcome is reported too.

        The timeout is dated at the deadline. So it comes after that outcome, in whatever order they arrive.
        """
        self._report_received()
        self._reported_timeout = True
        self._report(timed_out(), self._deadline_at)
        self._start()

    def _start(self) -> None:
        with contextlib.suppress(RuntimeError):  # no thread can be started: the end of the invocation tries again
            self._carrier.start()

    def _report_received(self) -> None:
        if not self._reported_received:
            self._reported_received = True
            self._carrier.offer(len(self._delivery.records), self._delivery.received)

    def _report(self, outcome: Outcome, not_before: int = 0) -> None:
        at = max(now_ms(), not_before)
        self._carrier.offer(len(self._delivery.records) + 1, lambda: self._delivery.ended(outcome, at))


def _left_ms(context: Any) -> float | None:
    try:
        return float(context.get_remaining_time_in_millis())
    except Exception as error:  # the context in a test may lack it
        raise_if_of_signal_handler(error)
        return None


def _marshal(result: Any) -> str | bytes:
    """Return what the runtime posts for a result. Raises the same errors as its encoder."""
    if isinstance(result, bytes):
        return result
    encode = _encoder()
    text: str = encode(result)
    return text


@functools.cache
def _encoder() -> Callable[[Any], str]:
    try:
        from awslambdaric.lambda_runtime_marshaller import to_json
    except ImportError:
        import json

        return json.dumps
    encode: Callable[[Any], str] = to_json
    return encode


__all__: Final = ["Wrapper", "wrap_handler"]
