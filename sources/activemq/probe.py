"""Send one message through a separate queue and record which advisories report it. Reads no clock.

Only this shows what a broker reports before anything happens in the queues that matter. It applies to the
policy entry that covers the probe queue; `unprepared` finds queues with entries of their own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Protocol

from sources.activemq.advisory import Advisory, ConsumerAdded, MessageAdvisory

SUBSCRIPTION = "probe"
_ANSWER_WITHIN_S = 5.0
_EXPIRES_MS = 86_400_000
"""By the broker's clock, which may be ahead of this machine's: an expired message is reported by nothing. One that is left behind
when the connection breaks is acknowledged by the next probe."""
EXPECTED = frozenset({"consumer", "delivered", "dispatched", "consumed"})


class Session(Protocol):
    """The part of a connection that a probe uses."""

    def send(self, destination: str, headers: Mapping[str, str], body: str = "") -> None:
        """Send one message."""

    def subscribe(self, destination: str, subscription: str, headers: Mapping[str, str], ack: str = "auto") -> None:
        """Subscribe."""

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription."""

    def ack(self, ack_id: str) -> None:
        """Acknowledge a message."""


class Probe:
    """One passage of one message. `seen` holds the advisories that reported it: elements of EXPECTED."""

    def __init__(self, session: Session, queue: str) -> None:
        self._session = session
        self.queue = queue
        self._marker = uuid.uuid4().hex
        self._message_id: str | None = None
        self._early: list[tuple[str, str]] = []
        self._started_s: float | None = None
        self.seen: set[str] = set()
        self.bodiless = False
        """Whether an advisory about it came with an empty body."""
        self.refused: str | None = None
        """Why the broker refused it, if it reported that."""
        self.done = False

    def start(self, now_s: float, now_ms: int) -> None:
        """Send the message. `now_s` is any monotonic clock. Raises `BrokerUnavailable`."""
        self._started_s = now_s
        destination = f"/queue/{self.queue}"
        headers = {"activemq.prefetchSize": "1", "receipt": "probe-subscribe"}
        self._session.subscribe(destination, SUBSCRIPTION, headers, ack="client-individual")
        headers = {
            "queuewatch-probe": self._marker,
            "persistent": "false",
            "expires": str(now_ms + _EXPIRES_MS),
            "receipt": "probe-send",
        }
        self._session.send(destination, headers)

    def message(self, headers: Mapping[str, str]) -> None:
        """Handle a message on the probe's own subscription. Raises `BrokerUnavailable`."""
        self._session.ack(headers["ack"])
        if headers.get("queuewatch-probe") == self._marker:
            self._message_id = headers["message-id"]
            for kind, message_id in self._early:
                self._note(kind, message_id)

    def advisory(self, advisory: Advisory) -> None:
        """Record an advisory if it is about the probe."""
        if isinstance(advisory, ConsumerAdded) and advisory.destination == self.queue:
            self.seen.add("consumer")
        elif isinstance(advisory, MessageAdvisory) and advisory.queue == self.queue:
            self.bodiless |= advisory.body is None
            self._note(advisory.kind, advisory.message_id)

    def error(self, headers: Mapping[str, str], said: str) -> None:
        """Record an error of the broker if it is about the probe."""
        if headers.get("receipt-id", "").startswith("probe-"):
            self.refused = said

    def tick(self, now_s: float) -> bool:
        """Whether the probe has just ended: everything was seen, it was refused, or it timed out."""
        if self.done or self._started_s is None:
            return False
        late = now_s - self._started_s > _ANSWER_WITHIN_S
        if not late and self.refused is None and not self.seen >= EXPECTED:
            return False
        self.done = True
        self._session.unsubscribe(SUBSCRIPTION)
        return True

    def _note(self, kind: str, message_id: str) -> None:
        if self._message_id is None:
            self._early.append((kind, message_id))  # Its arrival is reported before the message itself comes.
        elif message_id == self._message_id:
            self.seen.add(kind)
