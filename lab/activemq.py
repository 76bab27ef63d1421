"""An ActiveMQ Classic queue: the broker pushes messages into its consumers' prefetch windows.

A dispatched message is in flight until it is acknowledged or its consumer's connection ends; no window runs out. The reported
events are those a collector derives from the broker's advisories: redeliveries within a client (a rollback) are invisible, and
the copy in the dead-letter queue keeps the message's id.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.consumer import ServiceTime
from lab.history import Delivery, History, Outcome
from lab.report import Report, System, event
from lab.simulation import Simulation

SYSTEM: System = "activemq"
STATE_EVERY_S = 30.0
Failure = Literal["rollback", "nack"]
"""A JMS client rolls back and retries by itself; a STOMP NACK dead-letters at once."""


@dataclass
class MqMessage:
    """A message and how it will fail."""

    id: str
    sent_at: int
    fails: bool = False
    redelivered: int = 0


@dataclass
class MqQueue:
    """One queue of a broker and its subscriptions."""

    sim: Simulation
    name: str
    history: History
    reports: list[Report]
    dead_letters: MqQueue | None = None
    sent: list[MqMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log = self.history.of(self.name)
        self._random = self.sim.random(f"ids of {self.name}")
        self._waiting: deque[MqMessage] = deque()
        self.consumers: deque[MqConsumer] = deque()

    def send(self, *, fails: bool = False) -> MqMessage:
        """Send a message as a producer."""
        message = MqMessage(f"ID:shop-{self._random.getrandbits(48):012x}:1:1:1", self.sim.now, fails)
        self.sent.append(message)
        self.arrive(message)
        return message

    def arrive(self, message: MqMessage, from_queue: str | None = None) -> None:
        """Add a message to the queue: MessageDelivered."""
        self._log.enter(message.id, "visible", message.sent_at, self.sim.now)
        reported = event(
            "sent", self.sim.now, self.name, SYSTEM, message_id=message.id, sent_at=message.sent_at, from_queue=from_queue
        )
        self.reports.append(Report("producer", "broker-1", message.id, reported))
        self._waiting.append(message)
        self.dispatch()

    def dispatch(self) -> None:
        """Push waiting messages into prefetch windows with room, one consumer after the other."""
        for _ in range(len(self.consumers)):
            while self._waiting and any(c.room for c in self.consumers):
                consumer = self.consumers[0]
                self.consumers.rotate(-1)
                if consumer.room:
                    self._push(self._waiting.popleft(), consumer)

    def settle(self, message: MqMessage, delivery: Delivery) -> None:
        """Acknowledge a message: MessageConsumed."""
        self._end_delivery(delivery, "deleted")
        self._log.leave(message.id, "deleted", self.sim.now)
        self._report("deleted", message, delivery)

    def dead_letter(self, message: MqMessage, delivery: Delivery) -> None:
        """Move a message to the dead-letter queue: MessageDelivered there, MessageDLQd here."""
        assert self.dead_letters is not None
        self._end_delivery(delivery, "dropped")
        self._log.leave(message.id, "dead_lettered", self.sim.now)
        self._report("dead_lettered", message, delivery, to_queue=self.dead_letters.name)
        self.dead_letters.arrive(message, self.name)

    def requeue(self, held: list[tuple[MqMessage, Delivery]]) -> None:
        """Return the messages of an ended connection to the front, in their order.

        Only the first was being read, unless it has just been dispatched. The broker does not count the others, which were
        in the prefetch window, as redelivered.
        """
        for n, (message, delivery) in reversed(list(enumerate(held))):
            self._end_delivery(delivery, "released")
            message.redelivered += n == 0 and self.sim.now > delivery.at
            self._log.change(message.id, "visible", self.sim.now)
            self._report("released", message, delivery)
            self._waiting.appendleft(message)
        self.dispatch()

    def _push(self, message: MqMessage, consumer: MqConsumer) -> None:
        delivery = Delivery(self.name, message.id, consumer.name, message.redelivered + 1, self.sim.now)
        self._log.deliveries.append(delivery)
        self._log.change(message.id, "in_flight", self.sim.now)
        self._report("received", message, delivery)
        consumer.take(message, delivery)

    def _end_delivery(self, delivery: Delivery, outcome: Outcome) -> None:
        delivery.ended_at, delivery.outcome = self.sim.now, outcome

    def _report(self, kind: str, message: MqMessage, delivery: Delivery, **fields: Any) -> None:
        about: dict[str, Any] = {"message_id": message.id, "sent_at": message.sent_at, "receive_count": delivery.receive_count}
        reported = event(kind, self.sim.now, self.name, SYSTEM, consumer=delivery.consumer, **about, **fields)
        self.reports.append(Report("consumer", delivery.consumer, message.id, reported))


@dataclass
class MqConsumer:
    """One subscription: a prefetch window, and one message processed at a time. Attributes may be changed while it runs."""

    sim: Simulation
    name: str
    queue: MqQueue
    service: ServiceTime
    prefetch: int = 100
    max_redeliveries: int = 6
    failure: Failure = "rollback"
    fails_always: bool = False
    slow_factor: float = 1.0
    connected: bool = False
    hung: bool = False

    def __post_init__(self) -> None:
        self._random = self.sim.random(f"consumer {self.name}")
        self._held: deque[tuple[MqMessage, Delivery]] = deque()
        self._life = 0
        self._working = False
        self.connect()
        self._report_regularly()

    @property
    def room(self) -> bool:
        """Whether the prefetch window has room for one more."""
        return self.connected and len(self._held) < self.prefetch

    def connect(self) -> None:
        """Subscribe."""
        self.connected = True
        self.queue.consumers.append(self)
        self._report_state()
        self.queue.dispatch()

    def disconnect(self) -> None:
        """End the connection; the broker takes back unacknowledged messages at once."""
        self.connected, self._working = False, False
        self._life += 1
        self.queue.consumers.remove(self)
        held, self._held = list(self._held), deque()
        self._report_state()
        self.queue.requeue(held)

    def change(self, **attributes: object) -> None:
        """Set attributes by name."""
        for name, value in attributes.items():
            setattr(self, name, value)

    def take(self, message: MqMessage, delivery: Delivery) -> None:
        """Receive a dispatched message."""
        self._held.append((message, delivery))
        self._work()

    def _work(self) -> None:
        if self._working or self.hung or not self._held:
            return
        self._working = True
        message, _ = self._held[0]
        work_s = self.service(self._random) * self.slow_factor
        if self.fails_always or message.fails:
            tries = self.max_redeliveries + 1 if self.failure == "rollback" else 1
            work_s = work_s / 2 * tries + (tries - 1)  # the client's default delay between its redeliveries is 1 s
        life = self._life
        self.sim.after_s(work_s, lambda: self._finish(life))

    def _finish(self, life: int) -> None:
        if life != self._life:
            return
        if self.hung:
            self._working = False
            return
        message, delivery = self._held.popleft()
        self._working = False
        if self.fails_always or message.fails:
            self.queue.dead_letter(message, delivery)
        else:
            self.queue.settle(message, delivery)
        self._work()
        self.queue.dispatch()

    def _report_regularly(self) -> None:
        self.sim.after_s(STATE_EVERY_S, self._report_regularly)
        if self.connected:
            self._report_state()

    def _report_state(self) -> None:
        attributes = {"connected": self.connected, "prefetch": self.prefetch, "dispatched": len(self._held)}
        reported = event("consumer_state", self.sim.now, self.queue.name, SYSTEM, consumer=self.name, attributes=attributes)
        self.queue.reports.append(Report("consumer", self.name, None, reported))
