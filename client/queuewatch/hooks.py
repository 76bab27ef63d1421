"""Hooks on botocore's events: see the application's SQS calls without changing what it sees."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from queuewatch.events import Event
from queuewatch.places import Place, place_of_arn, place_of_url
from queuewatch.sqs_events import OPERATIONS, Call, Translator

_log = logging.getLogger("queuewatch.client")

_MARK: Final = "queuewatch"
_ALL: Final = "All"
_MODERN: Final = "MessageSystemAttributeNames"
_DEPRECATED: Final = "AttributeNames"
_NOTHING: Final[frozenset[str]] = frozenset()


def now_ms() -> int:
    """Wall time, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class SqsHooks:
    """The two callbacks of one watched client, session or resource.

    Before a call is built, ReceiveMessage is made to ask for every system attribute (and the lineage attribute);
    after it, what the application did not ask for is taken out of the answer again. Nothing raised in here
    reaches the application: it is counted in `errors`.
    """

    def __init__(
        self,
        translator: Translator,
        deliver: Callable[[Sequence[Event]], None],
        consumer: Callable[[], str],
        *,
        scope: str | None = None,
        lineage_attribute: str | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._translator = translator
        self._deliver = deliver
        self._consumer = consumer
        self._scope = scope
        self._lineage_attribute = lineage_attribute
        self._clock_ms = clock_ms
        self.active = True
        self.errors = 0
        self.calls = 0

    def register(self, emitter: Any) -> None:
        """Hook into a botocore event emitter; a second time is without effect."""
        # Last before, first after: other people's hooks meet the calls and answers they would meet without us.
        emitter.register_last("before-parameter-build.sqs", self.before, unique_id=f"{_MARK}-before")
        emitter.register_first("after-call.sqs", self.after, unique_id=f"{_MARK}-after")

    def unregister(self, emitter: Any) -> None:
        """Undo `register`; clients that a session made in between keep hooks that do nothing any more."""
        self.active = False
        emitter.unregister("before-parameter-build.sqs", unique_id=f"{_MARK}-before")
        emitter.unregister("after-call.sqs", unique_id=f"{_MARK}-after")

    def before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        """Called with the parameters of every SQS call."""
        if not self.active or model.name not in OPERATIONS or _MARK in context:
            return
        try:
            pending = _Pending(params, self._clock_ms(), context.get("client_region"))
            if model.name == "ReceiveMessage":
                pending.ask(model, self._lineage_attribute)
            context[_MARK] = (self, pending)
        except Exception as error:
            self._failed(error)

    def after(self, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        """Called with the answer of every SQS call, errors included."""
        owner, pending = context.get(_MARK, (None, None))
        if owner is not self:
            return
        try:
            if "Error" not in parsed:
                events = self._events(pending, parsed, model.name, context)
                if events:
                    self._deliver(events)
        except Exception as error:
            self._failed(error)
        finally:
            try:
                pending.strip(parsed)
            except Exception as error:
                self._failed(error)

    def _events(self, pending: _Pending, parsed: dict[str, Any], operation: str, context: dict[str, Any]) -> list[Event]:
        self.calls += 1
        call = Call(
            operation=operation,
            params=pending.params,
            place=self._place(pending),
            consumer=self._consumer(),
            began_at=pending.began_at,
            ended_at=self._clock_ms(),
            retried=context.get("retries", {}).get("attempt", 1) > 1,
        )
        return self._translator.events(call, parsed)

    def _place(self, pending: _Pending) -> Place:
        url = pending.params.get("QueueUrl")
        source = pending.params.get("SourceArn", "")  # of a move task, which names no URL
        place = place_of_url(url, pending.region) if url else place_of_arn(source)
        return place if self._scope is None else Place(self._scope, place.queue)

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        if self.errors == 1:
            _log.warning("telemetry of a call is lost, the call is not affected: %r", error)


class _Pending:
    """A call under way, and what of its answer the application did not ask for."""

    __slots__ = ("_attributes", "_hide_message_attributes", "began_at", "params", "region")

    def __init__(self, params: dict[str, Any], began_at: int, region: str | None) -> None:
        self.params = params
        self.began_at = began_at
        self.region = region
        self._attributes: frozenset[str] | None = None
        self._hide_message_attributes = False

    def ask(self, model: Any, lineage_attribute: str | None) -> None:
        """Ask for all system attributes, in lists of our own, and remember what the application asked for."""
        modern, former = self._asked(_MODERN), self._asked(_DEPRECATED)
        if _ALL not in modern and _ALL not in former:
            deprecated = _DEPRECATED in self.params and _MODERN not in self.params
            if not deprecated and _MODERN in model.input_shape.members:
                self.params[_MODERN] = [*modern, _ALL]
            else:
                self.params[_DEPRECATED] = [*former, _ALL]
            self._attributes = frozenset((*modern, *former)) if modern or former else _NOTHING
        # One more attribute beside some would change the digest SQS gives over those returned.
        if lineage_attribute is not None and not self._asked("MessageAttributeNames"):
            self.params["MessageAttributeNames"] = [lineage_attribute]
            self._hide_message_attributes = True

    def _asked(self, name: str) -> Sequence[str]:
        asked: Sequence[str] = self.params.get(name) or ()
        return asked

    def strip(self, parsed: dict[str, Any]) -> None:
        """Take out of the answer what was only asked for by us."""
        messages: Iterable[dict[str, Any]] = parsed.get("Messages") or ()
        for message in messages:
            if self._attributes is not None and "Attributes" in message:
                kept = self._attributes and {k: v for k, v in message["Attributes"].items() if k in self._attributes}
                if kept:
                    message["Attributes"] = kept
                else:
                    del message["Attributes"]
            if self._hide_message_attributes:
                message.pop("MessageAttributes", None)
                message.pop("MD5OfMessageAttributes", None)
