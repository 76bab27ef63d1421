"""Consumers: threads that poll, work and settle, and the ways in which they go wrong."""

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
"""Seconds of work for the next message."""

Failure = Literal["keep", "release"]
"""What happens to a message that could not be processed: its window runs out, or it is given back at once."""


def exponential(mean_s: float) -> ServiceTime:
    """Exponential times."""
    return lambda random: random.expovariate(1 / mean_s)


def lognormal(mean_s: float, sigma: float = 0.5) -> ServiceTime:
    """Lognormal times with this mean: what most workers look like."""
    mu = math.log(mean_s) - sigma**2 / 2
    return lambda random: random.lognormvariate(mu, sigma)


def mostly(usual: ServiceTime, rare: ServiceTime, rare_ratio: float) -> ServiceTime:
    """`rare` with a probability of `rare_ratio`, `usual` otherwise."""
    return lambda random: rare(random) if random.random() < rare_ratio else usual(random)


def uniform(low_s: float, high_s: float) -> ServiceTime:
    """Evenly between two times."""
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
    """How much of the usual work is done when a message fails."""
    extend_every_s: float | None = None
    """Extends the window of the message at work so often; None: never."""
    polling: bool = True
    _life: int = 0
    """Grows when the process is killed: nobody goes on with what an earlier life began."""
    _shift: int = 0
    """Grows when polling starts again: threads of an earlier shift finish what they have and poll no more."""

    def __post_init__(self) -> None:
        self._random = self.sim.random(f"consumer {self.name}")
        self._hang_next = False
        self._start_threads()

    def kill(self) -> None:
        """The process is gone; what it held comes back when the windows run out."""
        self._life += 1
        self.polling = False

    def stop(self) -> None:
        """No further receives; what is at work is finished, also after another `start`."""
        self.polling = False

    def change(self, **attributes: object) -> None:
        """Set attributes by name."""
        for name, value in attributes.items():
            setattr(self, name, value)

    def start(self) -> None:
        """Polls again, after `stop` or `kill`."""
        if not self.polling:
            self.polling = True
            self._shift += 1
            self._start_threads()

    def hang(self) -> None:
        """The thread that begins the next message works on it for ever, and extends its window where the consumer does."""
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
        """The first of `receipts`, then the others, then the next receive."""
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
        elif self.failure == "release" and self.queue.change_visibility(receipt, 0):
            self._report("released", receipt)
        if rest:
            self._work(rest, life, shift)
        else:
            self._poll(life, shift)

    def _report(self, kind: str, receipt: Receipt, **fields: object) -> None:
        message = receipt.message
        told = event(kind, self.sim.now, self.queue.name, message_id=message.id, group=message.group, consumer=self.name)
        told.update((name, value) for name, value in fields.items() if value is not None)
        self.reports.append(Report("consumer", self.name, message.id, told))
