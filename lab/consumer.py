"""Consumers: threads that poll, process and settle messages, and the ways in which they fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from lab.report import Report, event
from lab.simulation import Simulation
from lab.sqs import Receipt, SqsQueue

ServiceTime = Callable[[Random], float]
"""Seconds of processing for the next message."""

Failure = Literal["keep", "release"]
"""What happens to a failed message: its window runs out, or it is released at once."""


SIGMA = 0.5
"""The standard deviation of the logarithm of lognormal service times."""


def lognormal(mean_s: float) -> ServiceTime:
    """Return lognormal times with this mean, as most workers have."""
    mu = math.log(mean_s) - SIGMA**2 / 2
    return lambda random: random.lognormvariate(mu, SIGMA)


def uniform(low_s: float, high_s: float) -> ServiceTime:
    """Return times distributed evenly between two values."""
    return lambda random: random.uniform(low_s, high_s)


@dataclass
class Consumer:
    """One process with some threads. Its attributes may be changed while it runs."""

    sim: Simulation
    name: str
    queue: SqsQueue
    reports: list[Report]
    service: ServiceTime
    threads: int = 4
    batch: int = 1
    version: str = "v1"
    slow_factor: float = 1.0
    fails_always: bool = False
    failure: Failure = "keep"
    fail_after_ratio: float = 0.5
    """The share of the usual processing done before a message fails."""
    extend_every_s: float | None = None
    """How often it extends the window of the message it processes; None: never."""
    polling: bool = True
    _life: int = 0
    """Incremented when the process is killed: work of an earlier life is abandoned."""
    _shift: int = 0
    """Incremented when polling restarts: threads of an earlier shift finish their messages and poll no more."""

    def __post_init__(self) -> None:
        self._random = self.sim.random(f"consumer {self.name}")
        self._hang_next = False
        self._start_threads()

    def kill(self) -> None:
        """Kill the process; its messages come back when their windows run out."""
        self._life += 1
        self.polling = False

    def stop(self) -> None:
        """Stop receiving; messages in progress are finished, even after another `start`."""
        self.polling = False

    def change(self, **attributes: object) -> None:
        """Set attributes by name."""
        for name, value in attributes.items():
            setattr(self, name, value)

    def start(self) -> None:
        """Resume polling after `stop` or `kill`."""
        if not self.polling:
            self.polling = True
            self._shift += 1
            self._start_threads()

    def hang(self) -> None:
        """Let the thread that starts the next message process it for ever, extending its window if the consumer does so."""
        self._hang_next = True

    def _start_threads(self) -> None:
        for _ in range(self.threads):
            self._poll(self._life, self._shift)

    def _poll(self, life: int, shift: int) -> None:
        if (life, shift) != (self._life, self._shift) or not self.polling:
            return
        receipts = self.queue.receive(self.name, self.batch)
        if not receipts:
            self.queue.wait(lambda: self._poll(life, shift))
            return
        for receipt in receipts:
            message = receipt.message
            self._report(
                "received",
                receipt,
                receive_count=receipt.receive_count,
                sent_at=message.sent_at,
                first_received_at=message.first_received_at,
                sequence=str(message.sequence) if message.sequence else None,
            )
        self._work(receipts, life, shift)

    def _work(self, receipts: list[Receipt], life: int, shift: int) -> None:
        """Process the first of `receipts`, then the others, then receive again."""
        receipt, rest = receipts[0], receipts[1:]
        usual_s = self.service(self._random) if receipt.message.work_s is None else receipt.message.work_s
        work_s = usual_s * self.slow_factor
        fails = self.fails_always or receipt.message.fails_on in ("*", self.version)
        if fails:
            work_s *= self.fail_after_ratio
        if self._hang_next:
            self._hang_next, work_s = False, math.inf
        if self.extend_every_s is not None:
            self._extend_until(receipt, life, self.sim.now + work_s * 1000)
        if work_s < math.inf:
            self.sim.after_s(work_s, lambda: self._finish(receipt, rest, life, shift, fails=fails))

    def _extend_until(self, receipt: Receipt, life: int, done_at: float) -> None:
        every_s = self.extend_every_s
        assert every_s is not None

        def extend() -> None:
            if life != self._life or self.sim.now >= done_at:
                return
            window_s = self.queue.settings.visibility_timeout_s
            if self.queue.change_visibility(receipt, window_s):
                self._report("extended", receipt, invisible_until=self.sim.now + round(window_s * 1000))
            self.sim.after_s(every_s, extend)

        self.sim.after_s(every_s, extend)

    def _finish(self, receipt: Receipt, rest: list[Receipt], life: int, shift: int, *, fails: bool) -> None:
        if life != self._life:
            return
        if not fails:
            if self.queue.delete(receipt):
                self._report("deleted", receipt)
            elif receipt.delivery.outcome == "timed_out":
                self._report("outlived", receipt)
        elif self.failure == "release" and self.queue.change_visibility(receipt, 0):
            self._report("released", receipt)
        if rest:
            self._work(rest, life, shift)
        else:
            self._poll(life, shift)

    def _report(self, kind: str, receipt: Receipt, **fields: object) -> None:
        message = receipt.message
        reported = event(kind, self.sim.now, self.queue.name, message_id=message.id, group=message.group, consumer=self.name)
        reported.update((name, value) for name, value in fields.items() if value is not None)
        self.reports.append(Report("consumer", self.name, message.id, reported))
