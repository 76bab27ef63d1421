"""A Cloudflare queue with its consumer Worker: batches, retries, delays, and a verdict for each message.

A delivered message belongs to its invocation until that ends; there is no visibility window. `attempts` is one more than the
retries so far; after `max_retries` retries a message goes to the dead-letter queue, or is dropped when there is none. Events are
built as the module for Workers builds them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.consumer import ServiceTime
from lab.history import Delivery, History
from lab.report import Report, System, event
from lab.simulation import Simulation

SYSTEM: System = "cloudflare_queues"
LONGEST_INVOCATION_MS = 15 * 60_000
Failure = Literal["throw", "retry"]
"""A handler that throws fails its whole batch; one that retries returns the messages it could not process."""


@dataclass(frozen=True)
class CloudflareSettings:
    """Settings of a queue and of its consumer. Seconds and counts."""

    name: str
    max_batch_size: int = 10
    max_batch_timeout_s: float = 5.0
    max_retries: int = 3
    retry_delay_s: float = 0.0
    max_concurrency: int = 5
    dead_letter_queue: str | None = None
    retention_s: float = 345_600.0

    def attributes(self, *, has_consumer: bool) -> dict[str, Any]:
        """Return the settings as a collector reads them."""
        found: dict[str, Any] = {"kind": "standard", "retention_s": self.retention_s, "has_consumer": has_consumer}
        if has_consumer:
            found |= {
                "max_batch_size": self.max_batch_size,
                "max_batch_timeout_s": self.max_batch_timeout_s,
                "max_retries": self.max_retries,
                "max_receive_count": self.max_retries + 1,
                "retry_delay_s": self.retry_delay_s,
                "max_concurrency": self.max_concurrency,
                "dead_letter_queue": self.dead_letter_queue or "",
            }
        return found


@dataclass
class CloudflareMessage:
    """A message and how it will fail."""

    id: str
    sent_at: int
    fails_on: str | None = None
    attempts: int = 0


@dataclass
class CloudflareQueue:
    """One queue; its consumer's attributes may be changed while it runs. `service` None: there is no consumer."""

    sim: Simulation
    settings: CloudflareSettings
    history: History
    reports: list[Report]
    service: ServiceTime | None = None
    dead_letters: CloudflareQueue | None = None
    failure: Failure = "throw"
    version: str = "v1"
    fails_always: bool = False
    slow_factor: float = 1.0
    paused: bool = False
    sent: list[CloudflareMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log = self.history.of(self.settings.name)
        self._random = self.sim.random(f"worker of {self.settings.name}")
        self._ready: deque[tuple[int, CloudflareMessage]] = deque()
        self._running = 0
        self._batches = 0

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def worker(self) -> str:
        """The consumer's name in its own reports."""
        return f"{self.name}-worker"

    def send(self, *, fails_on: str | None = None) -> CloudflareMessage:
        """Send one message now. A Worker does not learn its id and reports nothing."""
        message = CloudflareMessage(f"{self._random.getrandbits(128):032x}", self.sim.now, fails_on)
        self.sent.append(message)
        self._enter(message)
        return message

    def change(self, **attributes: object) -> None:
        """Set attributes by name."""
        for name, value in attributes.items():
            setattr(self, name, value)
        self._dispatch()

    def _enter(self, message: CloudflareMessage) -> None:
        self._log.enter(message.id, "visible", message.sent_at, self.sim.now)
        self._wait(message)

    def _wait(self, message: CloudflareMessage) -> None:
        self._ready.append((self.sim.now, message))
        self._dispatch()
        self.sim.after_s(self.settings.max_batch_timeout_s, self._dispatch)

    def _dispatch(self) -> None:
        """Deliver every batch that is full or has waited long enough."""
        s = self.settings
        while self.service is not None and not self.paused and self._running < s.max_concurrency and self._ready:
            waited_s = (self.sim.now - self._ready[0][0]) / 1000
            if len(self._ready) < s.max_batch_size and waited_s < s.max_batch_timeout_s:
                return
            self._deliver([self._ready.popleft()[1] for _ in range(min(s.max_batch_size, len(self._ready)))])

    def _deliver(self, batch: list[CloudflareMessage]) -> None:
        assert self.service is not None
        self._running += 1
        self._batches += 1
        batch_id = f"{self.name}-{self._batches}"
        deliveries = []
        for message in batch:
            message.attempts += 1
            self._log.change(message.id, "in_flight", self.sim.now)
            deliveries.append(Delivery(self.name, message.id, self.worker, message.attempts, self.sim.now))
            until = self.sim.now + LONGEST_INVOCATION_MS
            about = {"sent_at": message.sent_at, "receive_count": message.attempts, "invisible_until": until}
            self._report("received", message.id, batch_id=batch_id, **about)
        self._log.deliveries += deliveries
        work_s = sum(self.service(self._random) for _ in batch) * self.slow_factor
        self.sim.after_s(work_s, lambda: self._finish(batch, deliveries, batch_id))

    def _finish(self, batch: list[CloudflareMessage], deliveries: list[Delivery], batch_id: str) -> None:
        self._running -= 1
        bad = {m.id for m in batch if self.fails_always or m.fails_on in ("*", self.version)}
        thrown = bool(bad) and self.failure == "throw"
        again = {m.id for m in batch} if thrown else bad
        for message, delivery in zip(batch, deliveries, strict=True):
            delivery.ended_at = self.sim.now
            if message.id in again:
                self._give_back(message, delivery, batch_id, "Error" if thrown else "retry")
            else:
                delivery.outcome = "deleted"
                self._log.leave(message.id, "deleted", self.sim.now)
                self._report("deleted", message.id, batch_id=batch_id, receive_count=message.attempts, reason="ack")
        counts = {"size": len(batch), "acked": len(batch) - len(again)}
        counts |= {"failed": len(again) if thrown else 0, "retried": 0 if thrown else len(again)}
        self._report("batch", None, batch_id=batch_id, reason="Error" if thrown else None, attributes=counts)
        self._dispatch()

    def _give_back(self, message: CloudflareMessage, delivery: Delivery, batch_id: str, why: str) -> None:
        s = self.settings
        about: dict[str, Any] = {"batch_id": batch_id, "receive_count": message.attempts, "reason": why}
        if message.attempts <= s.max_retries:
            delivery.outcome = "released"
            visible_at = self.sim.now + round(s.retry_delay_s * 1000)
            self._report("released", message.id, **about, visible_at=visible_at if s.retry_delay_s else None)
            self._log.change(message.id, "delayed" if s.retry_delay_s else "visible", self.sim.now)
            self.sim.after_s(s.retry_delay_s, lambda: self._come_back(message))
        elif self.dead_letters is not None:
            delivery.outcome = "released"
            self._report("dead_lettered", message.id, **about, to_queue=self.dead_letters.name)
            self._log.leave(message.id, "dead_lettered", self.sim.now)
            message.attempts = 0
            self.dead_letters._enter(message)
        else:
            delivery.outcome = "dropped"
            self._report("dropped", message.id, **about)
            self._log.leave(message.id, "dropped", self.sim.now)

    def _come_back(self, message: CloudflareMessage) -> None:
        if self.settings.retry_delay_s:
            self._log.change(message.id, "visible", self.sim.now)
        self._wait(message)

    def _report(self, kind: str, message_id: str | None, **fields: Any) -> None:
        reported = event(kind, self.sim.now, self.name, SYSTEM, message_id=message_id, consumer=self.worker, **fields)
        self.reports.append(Report("consumer", self.worker, message_id, reported))
