"""Build telemetry events from the API's answers. Pure: times are epoch milliseconds passed by the caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sources.cloudflare.answers import Backlog, ListedQueue, SampledMessage
from sources.cloudflare.settings import CONSUMER_SETTINGS, OMITTED_SETTINGS, Backoff, Consumer, attributes_of, findings
from sources.events import WIRE_VERSION, Event, heartbeat

SYSTEM: Final = "cloudflare_queues"
MAX_SUSPECTS: Final = 10
MAX_REMEMBERED: Final = 100_000


class EventBuilder:
    """Builds the events of one account."""

    def __init__(self, account_id: str, collector: str) -> None:
        self._account_id = account_id
        self._collector = collector
        self._reported: OrderedDict[tuple[str, str], None] = OrderedDict()

    def heartbeat(self, now_ms: int) -> Event:
        """Report that the collector is alive and the API answers."""
        return heartbeat(SYSTEM, self._collector, now_ms)

    def state(self, queue: str, attributes: Mapping[str, Any], backlog: Backlog, now_ms: int) -> Event:
        """Report a queue's settings and backlog.

        The backlog is what is not acknowledged: it includes messages in flight and delayed ones, and the API does not say how
        many. Only when it is empty is it certain that none is in flight; otherwise an earlier report of that is withdrawn.
        """
        state = {
            **attributes,
            "visible": backlog.count,
            "in_flight": 0 if backlog.count == 0 else None,
            "backlog_bytes": backlog.size_bytes,
            "oldest_sent_at": backlog.oldest_sent_at_ms,
        }
        return self._queue_state(queue, state, now_ms)

    def sample(self, queue: str, sampled: Sequence[SampledMessage], now_ms: int) -> Event:
        """Report what a sample of messages showed, without claiming to know their fate."""
        tried = sorted((m for m in sampled if m.attempts > 1), key=lambda m: -m.attempts)
        suspects = [{"message_id": m.id, "attempts": m.attempts, "sent_at": m.sent_at_ms} for m in tried]
        attributes = {
            "sample_size": len(sampled),
            "sample_max_attempts": max((m.attempts for m in sampled), default=0),
            "sample_suspects": suspects[:MAX_SUSPECTS],
        }
        return self._queue_state(queue, attributes, now_ms)

    def existence(self, queue: str, sampled: Sequence[SampledMessage], now_ms: int) -> Iterator[Event]:
        """Report that messages exist, once for each: sampling is not a delivery, so the event is `sent` and not `received`.

        `at` is when it was seen: in a dead-letter queue `sent_at`, which survives the move, can be days earlier.
        """
        for message in sampled:
            key = (queue, message.id)
            known = key in self._reported
            self._reported[key] = None
            self._reported.move_to_end(key)
            if not known:
                yield {
                    **self._about("sent", queue, now_ms),
                    "message_id": message.id,
                    "sent_at": message.sent_at_ms,
                    "receive_count": message.attempts,
                }
        while len(self._reported) > MAX_REMEMBERED:
            self._reported.popitem(last=False)

    def _queue_state(self, queue: str, attributes: Mapping[str, Any], now_ms: int) -> Event:
        return {**self._about("queue_state", queue, now_ms), "attributes": dict(attributes)}

    def _about(self, kind: str, queue: str, now_ms: int) -> Event:
        return {
            "v": WIRE_VERSION,
            "type": kind,
            "at": now_ms,
            "system": SYSTEM,
            "scope": self._account_id,
            "queue": queue,
        }


def settings_attributes(
    queue: ListedQueue,
    consumers: Sequence[Consumer] | None,
    declared: Consumer | None,
    declared_delay_s: float | None,
    backoff: Backoff | None,
) -> dict[str, Any]:
    """Return the settings of a queue as attributes: what is deployed, or what a Wrangler file declares where the API has nothing.

    `consumers` None: the API does not list them. Where both differ, `wrangler_differs` names the attributes. A consumer setting
    that neither has is null if the API lists the consumers: if it was reported before, it was removed.
    """
    written = attributes_of(queue.settings, declared, backoff) if declared is not None else {}
    if declared_delay_s is not None:
        written["delivery_delay_s"] = declared_delay_s
    if consumers is None:
        attributes = attributes_of(queue.settings, None) | written
        if declared is None:
            del attributes["has_consumer"]
    else:
        # A queue has one consumer; if the API ever lists more, the first represents them.
        attributes = attributes_of(queue.settings, consumers[0] if consumers else None, backoff)
        if declared is not None:
            differing = [n for n, v in written.items() if n in attributes and attributes[n] != v]
            attributes = written | attributes
            if differing:
                attributes["wrangler_differs"] = sorted(differing)
        attributes = dict.fromkeys(OMITTED_SETTINGS if consumers else CONSUMER_SETTINGS) | attributes
    found = [{"rule": finding.rule, "summary": finding.summary} for finding in findings(queue.name, attributes)]
    return attributes | {"findings": found}
