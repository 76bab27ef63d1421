"""Converts forwarded calls to the same events that the hooks in a Python application report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from queuewatch.events import Event, Unbuilt
from queuewatch.handles import HandleMap
from queuewatch.lineage import Lineage
from queuewatch.proxy.calls import AppCall
from queuewatch.sender import BackgroundSender
from queuewatch.sqs_events import OPERATIONS, Call, Translator

_log = logging.getLogger("queuewatch.proxy")


class Telemetry:
    """Turns each forwarded call into events. Errors are counted and never fail a call."""

    def __init__(
        self,
        sender: BackgroundSender | None,
        *,
        consumer: str,
        scope: str | None = None,
        max_handles: int = 100_000,
        lineage_attribute: str | None = None,
    ) -> None:
        """Without a `sender` calls are forwarded and nothing is reported."""
        self._sender = sender
        self._handles = HandleMap(max_handles)
        lineage = Lineage(lineage_attribute, {}) if lineage_attribute else None
        self._translator = Translator(self._handles, lambda: consumer, scope=scope, lineage=lineage)
        self.lineage_attribute = lineage_attribute
        self.errors = 0

    def wants(self, operation: str) -> bool:
        """Return whether telemetry needs the response to this operation."""
        return self._sender is not None and operation in OPERATIONS

    def report(
        self,
        call: AppCall,
        answer: Mapping[str, Any],
        queue_url: str,
        region: str,
        times_ms: tuple[int, int],
        *,
        retried: bool,
    ) -> None:
        """Record a successful call.

        `queue_url` is the canonical URL; `times_ms` are the start and end of the call in epoch milliseconds.
        """
        made = Call(call.operation, {**call.params, "QueueUrl": queue_url}, region, *times_ms, retried=retried)
        self._offer(self._translator.observe(made, answer))

    def report_refusal(
        self, call: AppCall, error: Mapping[str, Any], queue_url: str, region: str, times_ms: tuple[int, int]
    ) -> None:
        """Record a call that SQS refused with this error (`Code`, `Message`); see `report` for the rest."""
        made = Call(call.operation, {**call.params, "QueueUrl": queue_url}, region, *times_ms)
        self._offer(self._translator.observe_refusal(made, error))

    def _offer(self, events: Sequence[Unbuilt | Event]) -> None:
        if self._sender is not None and events:
            self._sender.offer(events)

    def failed(self, error: Exception) -> None:
        """Record that the telemetry of a call is lost; the call is not affected."""
        self.errors += 1
        if self.errors == 1:
            # Only the type, because an error's text may quote message data.
            _log.warning("telemetry of a call is lost, the call is not affected: %s", type(error).__name__)

    def stats(self) -> dict[str, Any]:
        """Return the counters."""
        sender = {} if self._sender is None else asdict(self._sender.stats())
        return {
            "telemetry": "off" if self._sender is None else self._sender.transport.name,
            "telemetry_errors": self.errors,
            "handles": len(self._handles),
            "handles_evicted": self._handles.evicted,
            "unknown_handles": self._translator.unknown_handles,
            **sender,
        }
