"""The common part of SQS standard and FIFO queues: windows, receive counts, redrive, retention.

Semantics as in the developer guide. A window ends by time. A message that was received maxReceiveCount times is moved by the
receive that would be one more. No event reports that a message was moved or that it expired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from lab.history import Delivery, End, History, Outcome
from lab.simulation import Simulation


@dataclass(frozen=True)
class QueueSettings:
    """The settings GetQueueAttributes would return. Seconds and counts."""

    name: str
    visibility_timeout_s: float = 30.0
    retention_s: float = 345_600.0
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    delay_s: float = 0.0
    max_in_flight: int = 120_000
    look_ahead: int = 120_000
    """FIFO: how many messages from the front are scanned for a group that is not blocked."""
    order_window: int = 20
    """Standard: a receive returns random ones of this many first visible messages. 1: strict order."""

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


@dataclass
class Message:
    """A message and, unlike in SQS, how it will fail."""

    id: str
    sent_at: int
    group: str | None = None
    sequence: int = 0
    fails_on: str | None = None
    """The consumer version that cannot process it; `*` for every version."""
    work_s: float | None = None
    """How long any consumer takes to process it; None: what the consumer draws."""
    arrived_at: int = 0
    receive_count: int = 0
    first_received_at: int | None = None
    in_flight: Delivery | None = None
    window_ends_at: int = 0


@dataclass
class Receipt:
    """The result of a receive: the message and which of its deliveries this is."""

    message: Message
    delivery: Delivery
    receive_count: int
    window_ends_at: int


@dataclass
class SqsQueue(ABC):
    """One queue, in simulated time."""

    sim: Simulation
    settings: QueueSettings
    history: History
    dead_letters: SqsQueue | None = None
    messages: dict[str, Message] = field(default_factory=dict)
    on_dead_lettered: Callable[[Message], object] | None = None

    def __post_init__(self) -> None:
        self._log = self.history.of(self.settings.name)
        self._ids = self.sim.random(f"ids of {self.settings.name}")
        self._waiters: deque[Callable[[], object]] = deque()
        self._waking = False
        self._in_flight = 0

    @property
    def name(self) -> str:
        return self.settings.name

    def send(self, *, group: str | None = None, fails_on: str | None = None, work_s: float | None = None) -> Message:
        """SendMessage."""
        now = self.sim.now
        message = Message(str(UUID(int=self._ids.getrandbits(128))), now, group, 0, fails_on, work_s)
        self._arrive(message, self.settings.delay_s)
        return message

    def receive(self, consumer: str, most: int, visibility_timeout_s: float | None = None) -> list[Receipt]:
        """ReceiveMessage without waiting."""
        window_s = self.settings.visibility_timeout_s if visibility_timeout_s is None else visibility_timeout_s
        receipts = []
        for message in self._take(min(most, self.settings.max_in_flight - self._in_flight)):
            message.receive_count += 1
            message.first_received_at = message.first_received_at or self.sim.now
            delivery = Delivery(self.name, message.id, consumer, message.receive_count, self.sim.now)
            self._log.deliveries.append(delivery)
            message.in_flight = delivery
            self._in_flight += 1
            self._log.change(message.id, "in_flight", self.sim.now)
            self._open_window(message, window_s)
            receipts.append(Receipt(message, delivery, message.receive_count, message.window_ends_at))
        return receipts

    def wait(self, waiter: Callable[[], object]) -> None:
        """Long poll: `waiter` is called once when there is a message to receive, and may find that it is gone."""
        self._waiters.append(waiter)
        self._wake_soon()

    def delete(self, receipt: Receipt) -> bool:
        """DeleteMessage. Returns whether the call succeeds, which does not mean that a message was deleted."""
        message = receipt.message
        if message.id not in self.messages:
            return not self.settings.fifo
        if message.in_flight is not receipt.delivery and self.settings.fifo:
            return False  # an expired handle is an error on a FIFO queue
        self._end(message, "deleted", "deleted")
        return True

    def change_visibility(self, receipt: Receipt, timeout_s: float) -> bool:
        """ChangeMessageVisibility; 0 releases the message. Returns whether the call succeeds."""
        message = receipt.message
        if message.in_flight is not receipt.delivery:
            return False
        if timeout_s:
            self._open_window(message, timeout_s)
        else:
            self._give_back(message, "released")
        return True

    def purge(self) -> None:
        """PurgeQueue."""
        for message in list(self.messages.values()):
            self._end(message, "purged", "purged")

    def redrive(self, target: SqsQueue, rate_per_s: float) -> None:
        """StartMessageMoveTask: messages that are visible now move to `target` with new ids, send times and counts."""
        waiting = [m for m in self.messages.values() if m.in_flight is None]
        for n, message in enumerate(waiting):
            self.sim.after_s(n / rate_per_s, partial(self._redrive_one, message, target))

    def _redrive_one(self, message: Message, target: SqsQueue) -> None:
        if message.id in self.messages and message.in_flight is None:
            self._end(message, "redriven", "deleted")
            target.send(group=message.group, fails_on=message.fails_on, work_s=message.work_s)

    def attributes(self) -> dict[str, Any]:
        """Return the settings as a collector reads them."""
        s = self.settings
        return {
            "kind": "fifo" if s.fifo else "standard",
            "visibility_timeout_s": s.visibility_timeout_s,
            "retention_s": s.retention_s,
            "delay_s": s.delay_s,
            "max_receive_count": s.max_receive_count,
            "dead_letter_queue": s.dead_letter_queue,
            **({"look_ahead": s.look_ahead} if s.fifo else {}),
        }

    def _arrive(self, message: Message, delay_s: float = 0.0) -> None:
        message.arrived_at = self.sim.now
        self.messages[message.id] = message
        # A standard dead letter keeps its send time; in a FIFO dead-letter queue its age and retention start again.
        sent_at = message.arrived_at if self.settings.fifo else message.sent_at
        self._log.enter(message.id, "delayed" if delay_s else "visible", sent_at, self.sim.now)
        self._add(message)
        self.sim.at(sent_at + round(self.settings.retention_s * 1000), lambda: self._expire(message))
        if delay_s:
            self.sim.after_s(delay_s, lambda: self._appear(message))
        else:
            self._offer(message)
            self._wake_soon()

    def _appear(self, message: Message) -> None:
        if message.id in self.messages:
            self._log.change(message.id, "visible", self.sim.now)
            self._offer(message)
            self._wake_soon()

    def _open_window(self, message: Message, window_s: float) -> None:
        message.window_ends_at = self.sim.now + round(window_s * 1000)
        delivery = message.in_flight
        self.sim.at(message.window_ends_at, lambda: self._end_window(message, delivery))

    def _end_window(self, message: Message, delivery: Delivery | None) -> None:
        if message.in_flight is delivery is not None and message.window_ends_at <= self.sim.now:
            self._give_back(message, "timed_out")

    def _give_back(self, message: Message, how: Outcome) -> None:
        self._close_delivery(message, how)
        self._log.change(message.id, "visible", self.sim.now)
        self._offer(message)
        self._wake_soon()

    def _expire(self, message: Message) -> None:
        if message.id in self.messages:
            self._end(message, "expired", "expired")

    def _move(self, message: Message) -> None:
        """Move a message to the dead-letter queue instead of a receive too many."""
        assert self.dead_letters is not None
        self._end(message, "dead_lettered", "timed_out")
        self.dead_letters._arrive(message)
        if self.on_dead_lettered:
            self.on_dead_lettered(message)

    def _exhausted(self, message: Message) -> bool:
        limit = self.settings.max_receive_count
        return self.dead_letters is not None and limit is not None and message.receive_count >= limit

    def _end(self, message: Message, how: End, outcome: Outcome) -> None:
        if message.in_flight is not None:
            self._close_delivery(message, outcome)
        del self.messages[message.id]
        self._log.leave(message.id, how, self.sim.now)
        self._remove(message)
        self._wake_soon()

    def _close_delivery(self, message: Message, outcome: Outcome) -> None:
        delivery = message.in_flight
        assert delivery is not None
        delivery.ended_at, delivery.outcome = self.sim.now, outcome
        message.in_flight = None
        self._in_flight -= 1
        self._unblock(message)

    def _wake_soon(self) -> None:
        if self._waiters and not self._waking:
            self._waking = True
            self.sim.at(self.sim.now, self._wake)

    def _wake(self) -> None:
        self._waking = False
        for _ in range(len(self._waiters)):
            if self._in_flight >= self.settings.max_in_flight or not self._receivable():
                return
            self._waiters.popleft()()

    @abstractmethod
    def _add(self, message: Message) -> None:
        """Add a new message, which may not be visible yet."""

    @abstractmethod
    def _offer(self, message: Message) -> None:
        """Handle a message that became visible, for the first time or again."""

    @abstractmethod
    def _take(self, most: int) -> list[Message]:
        """Return visible messages to deliver, in order, and dead-letter those that have no receive left."""

    @abstractmethod
    def _remove(self, message: Message) -> None:
        """Handle a message that ended."""

    @abstractmethod
    def _unblock(self, message: Message) -> None:
        """Handle the end of a message's delivery."""

    @abstractmethod
    def _receivable(self) -> bool:
        """Whether a receive might return or move something."""
