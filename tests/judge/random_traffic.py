"""Random traffic of one queue: phases of work that goes well, fails or lasts long, with quiet times between them.

Some queues report everything; others lack their sends, deliveries or deletions, or counts after some time, or some of their
consumers report nothing. Queues are of SQS or of ActiveMQ, which holds a message until it is settled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.core.driving import T0, event

Events = list[dict[str, Any]]

WINDOWS_S: Final = (10, 30, 60, 120)
PHASES_S: Final = (20, 60, 120, 300)
QUIET_S: Final = (20, 100, 300, 600, 900, 1_300)
RATES: Final = (0.05, 0.1, 0.2, 0.5)
"""Messages per second."""
SYSTEMS: Final = ("aws_sqs", "aws_sqs", "activemq")
UNSEEN: Final = (0, 0, 0, 0.1, 0.5)
"""Of so many deliveries the consumer reports nothing: neither the receive, which the count of the next one shows, nor the end."""
ODD_ONES: Final = (1, 2, 3, 5, 10)
"""In a phase of trouble, one in so many messages has it."""


class RandomQueue:
    """A queue from time 0 on. `r` decides everything, so a seed gives the same events again.

    One that is not `varied` is of SQS, all its consumers report, and none of its messages is lost.
    """

    def __init__(self, r: random.Random, name: str, *, varied: bool = True) -> None:
        self._r = r
        self._ordered = r.random() < 0.35
        self._varied, self._system = varied, r.choice(SYSTEMS) if varied else "aws_sqs"
        self._has_windows = self._system == "aws_sqs"
        self.name = f"{name}.fifo" if self._ordered and self._has_windows else name
        self._window_s = r.choice(WINDOWS_S)
        self._groups = r.choice((1, 3, 7))
        self._consumers = [f"worker-{i}" for i in range(r.randint(1, 3))]
        self._reports_sends, self._reports_ends, self._reports_receives = r.random() > 0.15, r.random() > 0.08, r.random() > 0.08
        self._unseen_ratio, self._unseen = r.choice(UNSEEN) if varied else 0, set[str]()
        self._attributes = self._settings()
        self._events: Events = []
        self._moves: list[tuple[float, int, int]] = []
        """When how many messages became visible and in flight, for the broker's counts."""
        self._sent = 0

    def events(self, until_s: int) -> Events:
        """Return what is reported until `until_s` seconds. Traffic ends before, so that some queues are quiet at the end."""
        begin = self._r.uniform(0, 60)
        while begin < 0.7 * until_s:
            length_s = self._r.choice(PHASES_S)
            self._phase(begin, min(begin + length_s, 0.85 * until_s))
            begin += length_s + self._r.choice(QUIET_S)
        return [*self._events, *self._counts(until_s), *self._consumer_states(until_s)]

    def _settings(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {"kind": "standard"}
        if self._has_windows:
            attributes["visibility_timeout_s"] = self._window_s
        if self._ordered:
            attributes["kind"] = "fifo" if self._has_windows else "grouped"
        if self._r.random() < 0.5:
            attributes |= {"max_receive_count": 5, "dead_letter_queue": "dead"}
        if self._ordered and self._r.random() < 0.7:
            attributes["throughput_limit"] = "perQueue"
        if self._r.random() < 0.1:
            attributes["paused"] = True
        return attributes

    def _phase(self, begin_s: float, end_s: float) -> None:
        rate, odd = self._r.choice(RATES), self._r.choice(ODD_ONES)
        trouble = self._r.choice((None, *self._troubles()))
        # Where it begins late, its share grows in a window that slides after the last message: what went well leaves first.
        trouble_from_s = begin_s + self._r.choice((0, 0.6, 0.9)) * (end_s - begin_s)
        at = begin_s
        while at < end_s:
            if trouble is not None and at >= trouble_from_s and self._sent % odd == 0:
                self._message(at, trouble)
            else:
                self._message(at, self._well)
            at += self._r.expovariate(rate) if self._r.random() < 0.5 else 1 / rate

    def _troubles(self) -> tuple[Callable[[str, float], None], ...]:
        extended = (self._is_extended,) if self._has_windows else ()
        lost = (self._is_lost,) if self._varied else ()
        return self._outlives, self._fails, self._is_retried, self._is_slow, *extended, self._is_held, self._waits, *lost

    def _message(self, at: float, live: Callable[[str, float], None]) -> None:
        message = f"{self.name}-{self._sent}"
        self._sent += 1
        if self._reports_sends:
            self._report("sent", at, message)
        self._moves.append((at, 1, 0))
        self._sent_at = T0 + int(1000 * at)
        live(message, at + self._r.choice((0.1, 0.1, 0.5, 3.0)))

    def _well(self, message: str, at: float) -> None:
        self._receive(message, at)
        self._delete(message, at + self._r.choice((0.2, 1.0, 2.0)))

    def _outlives(self, message: str, at: float) -> None:
        self._receive(message, at)
        self._delete(message, at + self._window_s * self._r.uniform(1.05, 1.9))

    def _fails(self, message: str, at: float) -> None:
        self._receive(message, at)
        if not self._has_windows:
            # The consumer that had it leaves.
            self._report("released", at + self._window_s, message, receive_count=1)
        self._receive(message, at + self._window_s + 1, 2)
        if self._r.random() < 0.7:
            self._delete(message, at + self._window_s + 2)

    def _is_retried(self, message: str, at: float) -> None:
        batch = f"batch-of-{message}"
        self._receive(message, at, batch_id=batch)
        self._events.append(self._event("batch", at + 1, batch_id=batch, attributes={"size": 1, "failed": 1}))
        self._receive(message, at + 1.5, 2)
        self._delete(message, at + 3)

    def _is_slow(self, message: str, at: float) -> None:
        self._receive(message, at)
        self._delete(message, at + 0.9 * self._window_s)

    def _is_extended(self, message: str, at: float) -> None:
        self._receive(message, at)
        until = T0 + int(1000 * (at + self._r.choice((300, 900, 2_000))))
        self._report("extended", at + 1, message, consumer=self._consumers[0], invisible_until=until)
        if self._r.random() < 0.5:
            self._delete(message, at + self._r.choice((100, 400, 900)))

    def _is_held(self, message: str, at: float) -> None:
        self._receive(message, at)

    def _is_lost(self, message: str, at: float) -> None:
        self._receive(message, at)
        ended_at = at + self._r.choice((1, self._window_s))
        kind = self._r.choice(("dead_lettered", "dropped", "expired"))
        self._report(kind, ended_at, message, **({"to_queue": "dead"} if kind == "dead_lettered" else {}))
        self._moves.append((ended_at, 0, -1))

    def _waits(self, message: str, at: float) -> None:
        """Nobody receives it."""

    def _receive(self, message: str, at: float, count: int = 1, **about: Any) -> None:
        self._unseen.discard(message)
        if self._unseen_ratio and self._r.random() < self._unseen_ratio:
            self._unseen.add(message)
        elif self._reports_receives:
            consumer = self._r.choice(self._consumers)
            self._report("received", at, message, receive_count=count, consumer=consumer, sent_at=self._sent_at, **about)
        if count == 1:
            self._moves.append((at, -1, 1))

    def _delete(self, message: str, at: float) -> None:
        if self._reports_ends and message not in self._unseen:
            self._report("deleted", at, message, consumer=self._consumers[0])
        self._moves.append((at, 0, -1))

    def _report(self, kind: str, at: float, message: str, **about: Any) -> None:
        if self._ordered:
            about["group"] = f"group-{int(message.rpartition('-')[2]) % self._groups}"
            if not self._has_windows:
                about["ordered"] = True
        self._events.append(self._event(kind, at, message_id=message, **about))

    def _event(self, kind: str, at: float, **about: Any) -> dict[str, Any]:
        return event(kind, int(1000 * at), queue=self.name, system=self._system, **about)

    def _counts(self, until_s: int) -> Iterator[dict[str, Any]]:
        """Yield the broker's counts: always, for a while, once or never."""
        ends_s = self._r.choice((until_s, 0.4 * until_s, 1, 0))
        visible = in_flight = 0
        moves = iter(sorted(self._moves))
        move = next(moves, None)
        for at in range(0, until_s, self._r.choice((30, 60))):
            if at >= ends_s:
                return
            while move is not None and move[0] <= at:
                visible, in_flight = visible + move[1], in_flight + move[2]
                move = next(moves, None)
            counts = {"visible": visible, "in_flight": in_flight, "delayed": 0}
            yield self._event("queue_state", at, attributes=self._attributes | counts)

    def _consumer_states(self, until_s: int) -> Iterator[dict[str, Any]]:
        """Yield what the broker says of the consumers, for a while or never: their windows, and that some have left."""
        if self._has_windows:
            return
        ends_s, prefetch = self._r.choice((until_s, 0.4 * until_s, 0)), self._r.choice((1, 10, 1_000))
        leaves_s = self._r.uniform(0, 2 * until_s)
        for at in range(0, until_s, 60):
            for consumer in self._consumers if at < ends_s else ():
                is_gone = consumer == self._consumers[0] and at >= leaves_s
                state = {"prefetch": prefetch, "connected": not is_gone}
                if not is_gone and self._r.random() < 0.7:
                    state["dispatched"] = self._r.choice((0, 1, prefetch))
                yield self._event("consumer_state", at, consumer=consumer, attributes=state)
