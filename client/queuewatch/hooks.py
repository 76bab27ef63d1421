"""Hooks on botocore's events that observe SQS calls without changing what the application sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from queuewatch.events import Event, Unbuilt
from queuewatch.log import log_warning
from queuewatch.signal_handlers import raise_if_of_signal_handler, suppress
from queuewatch.sqs_events import OPERATIONS, Call, Translator

MARK: Final = "queuewatch"
"""The key in the context of a call under which `before` leaves for `after` what it needs."""
_RECEIVE: Final = "ReceiveMessage"
_ALL: Final = "All"
_MODERN: Final = "MessageSystemAttributeNames"
_DEPRECATED: Final = "AttributeNames"
_CUSTOM: Final = "MessageAttributeNames"


class SqsHooks:
    """What one watch of a client, session or resource does before and after a call.

    Before a ReceiveMessage call is built, it is changed to request all system attributes (and the lineage attribute). After the
    call, attributes that the application did not request are removed from the response. Errors of the hooks never reach the
    application; they are counted in `errors`. What a signal handler of the application raises within them does.
    """

    def __init__(
        self,
        translator: Translator,
        deliver: Callable[[Sequence[Event | Unbuilt]], None],
        *,
        lineage_attribute: str | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._observe = translator.observe
        self._observe_refusal = translator.observe_refusal
        self._deliver = deliver
        self._lineage_attribute = lineage_attribute
        self._clock_ns = clock_ns
        self.active = True
        self.errors = 0
        self.calls = 0

    def before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        """Handle the parameters of every SQS call."""
        operation = model.name
        if not self.active or operation not in OPERATIONS or MARK in context or context.get("is_presign_request"):
            return
        try:
            seen = _as_they_are(params) if "Entries" in params else params
            call = Call(operation, seen, context.get("client_region"), self._clock_ns() // 1_000_000)
            added, strip = _ask(params, model, self._lineage_attribute) if operation == _RECEIVE else ({}, None)
            context[MARK] = (self, call, strip)
            # Last: whatever interrupts this, no response has attributes that `after` does not remove.
            params.update(added)
        except Exception as error:
            self._failed(error)

    def after(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        """Handle the response, or the error, of a call that `before` has seen."""
        _, call, strip = context[MARK]
        try:
            self._report(call, parsed, context)
        except Exception as error:
            self._failed(error)
        finally:
            if strip is not None:
                self._strip(strip, parsed)

    def _report(self, call: Call, parsed: dict[str, Any], context: dict[str, Any]) -> None:
        call.ended_at = self._clock_ns() // 1_000_000
        refusal = parsed.get("Error")
        if refusal is None:
            self.calls += 1
            retries = context.get("retries")
            call.retried = retries is not None and retries.get("attempt", 1) > 1
            found = self._observe(call, parsed)
        else:
            found = self._observe_refusal(call, refusal)
        if found:
            self._deliver(found)

    def _strip(self, strip: _Strip, parsed: dict[str, Any]) -> None:
        try:
            strip.out_of(parsed)
        except Exception as error:
            # An exception from outside, like a time limit, leaves the rest of the messages; the second attempt finishes them.
            with suppress(Exception):
                strip.out_of(parsed)
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Count an error and log the first; raise it again if it comes from a signal handler of the application."""
        raise_if_of_signal_handler(error)
        self.errors += 1
        if self.errors == 1:
            log_warning("telemetry of a call is lost, the call is not affected: %r", error)


class _Strip:
    """Removes attributes that the application did not request. `asked`: the system attributes it requested, None for all."""

    __slots__ = ("_asked", "_hide_message_attributes")

    def __init__(self, asked: frozenset[str] | None, hide_message_attributes: bool) -> None:
        self._asked = asked
        self._hide_message_attributes = hide_message_attributes

    def out_of(self, parsed: dict[str, Any]) -> None:
        """Remove the unrequested attributes from a response."""
        messages: Iterable[dict[str, Any]] = parsed.get("Messages") or ()
        for message in messages:
            if self._asked is not None and "Attributes" in message:
                kept = self._asked and {k: v for k, v in message["Attributes"].items() if k in self._asked}
                if kept:
                    message["Attributes"] = kept
                else:
                    del message["Attributes"]
            if self._hide_message_attributes:
                message.pop("MessageAttributes", None)
                message.pop("MD5OfMessageAttributes", None)


_NOTHING_ASKED: Final = _Strip(frozenset(), False)


def _as_they_are(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with a copy of the entries, whose list another task or thread may change during the call."""
    entries = params["Entries"]
    if not isinstance(entries, (list, tuple)):
        return params  # botocore refuses it
    return {**params, "Entries": [{**entry} if isinstance(entry, dict) else entry for entry in entries]}


def _ask(params: dict[str, Any], model: Any, lineage_attribute: str | None) -> tuple[dict[str, Any], _Strip | None]:
    """Return the parameters that request all system attributes, and what to remove from the response, or None.

    If the application passes anything else than a list or tuple, nothing is changed, so that botocore refuses it as usual.
    """
    for name in (_MODERN, _DEPRECATED, _CUSTOM):
        if name in params and not isinstance(params[name], (list, tuple)):
            return {}, None
    added: dict[str, Any] = {}
    modern, former = params.get(_MODERN) or (), params.get(_DEPRECATED) or ()
    asks_all = _ALL in modern or _ALL in former
    if not asks_all:
        deprecated = _DEPRECATED in params and _MODERN not in params
        if not deprecated and _MODERN in model.input_shape.members:
            added[_MODERN] = [*modern, _ALL]
        else:
            added[_DEPRECATED] = [*former, _ALL]
    # An additional custom attribute would change the digest that SQS computes over the returned ones.
    hide = lineage_attribute is not None and not params.get(_CUSTOM)
    if hide:
        added[_CUSTOM] = [lineage_attribute]
    if asks_all:
        return added, _Strip(None, hide) if hide else None
    return added, _Strip(frozenset((*modern, *former)), hide) if modern or former or hide else _NOTHING_ASKED
