"""Build one simulated queue with its dead-letter queue, producers and consumers, and run it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.consumer import Consumer, ServiceTime
from lab.history import History
from lab.producer import Mark, Producer, Rate
from lab.recording import Label, Recording
from lab.report import Report, event
from lab.simulation import Simulation, ms
from lab.sqs import QueueSettings, SqsQueue
from lab.sqs_fifo import FifoQueue
from lab.sqs_standard import StandardQueue

GROUPS = tuple(f"customer-{n:02d}" for n in range(40))


class World:
    """One queue `orders` (or `orders.fifo`) and its surroundings."""

    def __init__(self, name: str, kind: str, seed: int, duration_s: float, **settings: Any) -> None:
        self.name, self.kind, self.seed = name, kind, seed
        self.sim = Simulation(seed, duration_s)
        self.duration_s = duration_s
        self.history = History()
        self.reports: list[Report] = []
        self.labels: list[Label] = []
        self.consumers: list[Consumer] = []
        self.queues: list[SqsQueue] = []
        dead_letter_retention_s = settings.pop("dead_letter_retention_s", 1_209_600)
        suffix = ".fifo" if kind == "fifo" else ""
        chosen = QueueSettings(f"orders{suffix}", max_receive_count=4, dead_letter_queue=f"orders-dlq{suffix}")
        chosen = replace(chosen, **settings)
        self.dead_letters: SqsQueue | None = None
        if chosen.dead_letter_queue:
            self.dead_letters = self.add_queue(QueueSettings(chosen.dead_letter_queue, retention_s=dead_letter_retention_s))
        self.queue = self.add_queue(chosen, self.dead_letters)

    def add_queue(self, settings: QueueSettings, dead_letters: SqsQueue | None = None) -> SqsQueue:
        """Add a queue."""
        make = FifoQueue if settings.fifo else StandardQueue
        queue = make(self.sim, settings, self.history, dead_letters)
        self.queues.append(queue)
        return queue

    def produce(self, rate: Rate, peak_per_s: float, *, mark: Mark | None = None) -> Producer:
        """Add a producer of the queue."""
        groups = GROUPS if self.kind == "fifo" else ()
        return Producer(
            sim=self.sim,
            name="shop-1",
            queue=self.queue,
            reports=self.reports,
            rate=rate,
            peak_per_s=peak_per_s,
            groups=groups,
            mark=mark,
        )

    def consume(self, service: ServiceTime, count: int = 2, **particulars: Any) -> list[Consumer]:
        """Add consumers of the queue: worker-1, worker-2 and so on."""
        first = len(self.consumers) + 1
        made = [
            Consumer(self.sim, f"worker-{n}", self.queue, self.reports, service, **particulars)
            for n in range(first, first + count)
        ]
        self.consumers += made
        return made

    def operate(self, kind: str, queue: SqsQueue, **fields: Any) -> None:
        """Report an operator's call as a watched client would, now."""
        self.reports.append(Report("operator", "operator", None, event(kind, self.sim.now, queue.name, **fields)))

    def label(self, fault: str, from_s: float, detectable_s: float | None, *expected: str, **about: Any) -> None:
        """Label a fault of the queue from `from_s` on; `detectable_s` is the earliest second at which it can be detected."""
        tellable = from_s if detectable_s is None else detectable_s
        to_s = about.pop("to_s", None)
        cause_s = about.pop("cause_s", None)
        about |= {"to_ms": None if to_s is None else ms(to_s), "cause_ms": None if cause_s is None else ms(cause_s)}
        self.labels.append(Label(fault, self.queue.name, ms(from_s), detectable_ms=ms(tellable), expected=expected, **about))

    def run(self, allowed: frozenset[str] = frozenset()) -> Recording:
        """Run the simulation and return the recording."""
        self.sim.run()
        self.history.freeze()
        settings = {queue.name: queue.attributes() for queue in self.queues}
        name = f"{self.name}/{self.kind}"
        return Recording(
            name=name,
            seed=self.seed,
            duration_s=self.duration_s,
            reports=self.reports,
            history=self.history,
            settings=settings,
            labels=self.labels,
            allowed=allowed,
        )
