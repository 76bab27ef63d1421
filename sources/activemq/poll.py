"""Ask the broker for its counts at intervals and collect the replies of each round. Reads no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sources.activemq.statistics import (
    BROKER,
    QUEUES,
    SUBSCRIPTIONS,
    WITH_OLDEST,
    BrokerStatistics,
    QueueCounts,
    SubscriptionCounts,
    parse_reply,
)

REPLY_TO = "/temp-queue/queuewatch"
SUBSCRIPTION = "statistics"
_ANSWER_WITHIN_S = 5.0
"""After this long without an answer the broker seems to lack the plugin."""
_LATE_ANSWER_WITHIN_S = 300.0
"""The plugin's answers wait behind the advisories: a collector that is a minute behind gets them a minute late."""
_ROUNDS_WITHOUT_SUBSCRIPTIONS = 3
"""The plugin aborts when a subscription ends during a request: a single round without any proves
nothing."""
_ASK_AGAIN_S = 60.0
"""How long to wait before asking a broker without the plugin again."""


class Sender(Protocol):
    """The part of a connection that a poll uses."""

    def send(self, destination: str, headers: Mapping[str, str], body: str = "") -> None:
        """Send one message."""

    def subscribe(self, destination: str, subscription: str, headers: Mapping[str, str], ack: str = "auto") -> None:
        """Subscribe."""


@dataclass(slots=True)
class Round:
    """One complete round of replies."""

    asked_ms: int
    """In local time."""
    queues: list[QueueCounts] = field(default_factory=list)
    subscriptions: list[SubscriptionCounts] = field(default_factory=list)


class StatisticsPoll:
    """The conversation with StatisticsBrokerPlugin over one connection."""

    def __init__(self, sender: Sender, patterns: Sequence[str], interval_s: float, *, oldest_message: bool) -> None:
        self._sender = sender
        self._patterns = patterns
        self._interval_s = interval_s
        self._oldest = WITH_OLDEST if oldest_message else {}
        self._next_s = 0.0
        self._number = 0
        self._round: Round | None = None
        self._asked_s = 0.0
        self.plugin: Literal["unknown", "present", "missing"] = "unknown"
        self.subscriptions: Literal["unknown", "present", "missing"] = "unknown"
        """Whether the plugin reports subscriptions: it reads them over JMX, which may be disabled on a
        broker."""
        self.broker_name: str | None = None
        self._rounds_without = 0

    def start(self) -> None:
        """Subscribe to the replies. Raises `BrokerUnavailable`."""
        self._sender.subscribe(REPLY_TO, SUBSCRIPTION, {"transformation": "jms-json"})

    def tick(self, now_s: float, now_ms: int) -> None:
        """Send a request if one is due. `now_s` is any monotonic clock. Raises `BrokerUnavailable`."""
        within_s = _LATE_ANSWER_WITHIN_S if self.plugin == "present" else _ANSWER_WITHIN_S
        if self._round is not None and now_s - self._asked_s > within_s:
            self._round = None
            if self.plugin == "unknown":
                self.plugin = "missing"
        if self._round is not None or now_s < self._next_s:
            return
        self._next_s = now_s + (_ASK_AGAIN_S if self.plugin == "missing" else self._interval_s)
        self._asked_s, self._round = now_s, Round(now_ms)
        self._number += 1
        # Without the plugin, a request to a queue would remain there as a message.
        if self.plugin == "present":
            for pattern in self._patterns:
                self._ask(QUEUES + pattern, self._oldest)
            if self.subscriptions != "missing":
                self._ask(SUBSCRIPTIONS, {})
        self._ask(BROKER, {"correlation-id": self._mark()})

    def reply(self, headers: Mapping[str, str], body: str | bytes) -> Round | None:
        """Process one reply; return the round when this was its last."""
        reply = parse_reply(body)
        if reply is None:
            return None
        if isinstance(reply, BrokerStatistics):
            return self._end(reply, headers)
        if self._round is not None:
            if isinstance(reply, QueueCounts):
                self._round.queues.append(reply)
            else:
                self._round.subscriptions.append(reply)
        return None

    def _end(self, broker: BrokerStatistics, headers: Mapping[str, str]) -> Round | None:
        self.broker_name = broker.name
        if self.plugin != "present":
            # This round only checked for the plugin: ask for everything at once.
            self.plugin, self._round, self._next_s = "present", None, 0.0
            return None
        done = self._round
        if done is None:
            return None
        if headers.get("correlation-id") != self._mark():
            # This ends an abandoned round, and the replies before it are of that round, too.
            done.queues.clear()
            done.subscriptions.clear()
            return None
        # Our own subscriptions are always among them.
        self._rounds_without = 0 if done.subscriptions else self._rounds_without + 1
        if done.subscriptions:
            self.subscriptions = "present"
        elif self._rounds_without >= _ROUNDS_WITHOUT_SUBSCRIPTIONS:
            self.subscriptions = "missing"
        self._round = None
        return done

    def _ask(self, destination: str, headers: Mapping[str, str]) -> None:
        self._sender.send(destination, {"reply-to": REPLY_TO, **headers})

    def _mark(self) -> str:
        return f"queuewatch-{self._number}"
