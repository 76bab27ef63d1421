"""Cloudflare queues: batches that fail, and batches that do not."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from lab.cloudflare import SYSTEM, CloudflareQueue, CloudflareSettings
from lab.consumer import lognormal
from lab.earliest import first_failure, first_pause, longest_pause_s
from lab.history import History
from lab.recording import Label, Recording
from lab.report import Report
from lab.scenarios.incidents import FAILING
from lab.scenarios.matrix import DEATH, FAULT_S, HOUR_S, POISON
from lab.simulation import Simulation, ms

RATE_PER_S = 2.0
SERVICE_S = 0.5
"""Per message; a batch takes the sum of its messages' times."""


class CloudflareWorld:
    """One queue `orders` with two messages a second, and a consumer that processes up to five batches at once."""

    def __init__(self, name: str, seed: int, *, dead_letters: bool = True, rate_per_s: float = RATE_PER_S, **settings: Any):
        self.name, self.seed, self.rate_per_s = name, seed, rate_per_s
        self.sim, self.history = Simulation(seed, HOUR_S), History()
        self.reports: list[Report] = []
        target = "orders-dlq" if dead_letters else None
        parked = None if target is None else self._queue(CloudflareSettings(target))
        self.queue = self._queue(CloudflareSettings("orders", dead_letter_queue=target, **settings))
        self.queue.dead_letters, self.queue.service = parked, lognormal(SERVICE_S)
        self.queues = [q for q in (self.queue, parked) if q is not None]
        self.bad_ratio = 0.0
        self._random: Random = self.sim.random("producer")
        self._next()

    def run(self, label: Label | None = None, allowed: frozenset[str] = frozenset()) -> Recording:
        """Run it. A label that depends on what happened may be appended to the recording."""
        self.sim.run()
        self.history.freeze()
        settings = {q.name: q.settings.attributes(has_consumer=q.service is not None) for q in self.queues}
        labels = [] if label is None else [label]
        name = f"{self.name}/cloudflare"
        return Recording(
            name=name,
            seed=self.seed,
            duration_s=HOUR_S,
            reports=self.reports,
            history=self.history,
            settings=settings,
            labels=labels,
            allowed=allowed,
            system=SYSTEM,
        )

    def _queue(self, settings: CloudflareSettings) -> CloudflareQueue:
        return CloudflareQueue(self.sim, settings, self.history, self.reports)

    def _next(self) -> None:
        self.sim.after_s(self._random.expovariate(self.rate_per_s), self._send)

    def _send(self) -> None:
        self.queue.send(fails_on="*" if self._random.random() < self.bad_ratio else None)
        self._next()


def worker_healthy(_kind: str, seed: int) -> Recording:
    """Batches are acknowledged; nothing is retried."""
    return CloudflareWorld("worker_healthy", seed).run()


def worker_retries_late(_kind: str, seed: int) -> Recording:
    """One message in two hundred fails at least once, with a delay of a minute; some are dead-lettered by design."""
    world = CloudflareWorld("worker_retries_late", seed, retry_delay_s=60.0)
    world.queue.failure, world.bad_ratio = "retry", 0.005
    return world.run(allowed=POISON)


def worker_storm(_kind: str, seed: int) -> Recording:
    """From minute 20 on one message in twelve fails, and each fails its whole batch."""
    world = CloudflareWorld("worker_storm", seed)
    world.sim.at_s(FAULT_S, lambda: setattr(world, "bad_ratio", 1 / 12))
    recording = world.run(allowed=FAILING | {"BatchRetryStorm"})
    return _failing(recording, "failed_batches", "BatchRetryStorm", "QueueFailing")


def worker_broken(_kind: str, seed: int) -> Recording:
    """A broken deploy: every batch throws."""
    world = CloudflareWorld("worker_broken", seed)
    world.sim.at_s(FAULT_S, lambda: world.queue.change(fails_always=True))
    return _failing(world.run(allowed=FAILING | {"BatchRetryStorm"}), "broken_deploy", "QueueFailing")


def worker_loses(_kind: str, seed: int) -> Recording:
    """Without a dead-letter queue, a message that always fails is dropped after its last retry."""
    world = CloudflareWorld("worker_loses", seed, dead_letters=False)
    world.queue.failure = "retry"
    world.sim.at_s(FAULT_S, lambda: world.queue.send(fails_on="*"))
    recording = world.run(allowed=POISON | {"MessageDropped"})
    lost = next(e for e in world.history.of("orders").departures if e.how == "dropped")
    label = Label("lost", "orders", lost.at, None, lost.at, lost.message_id, cause_ms=ms(FAULT_S))
    recording.labels.append(replace(label, expected=("MessageDropped",)))
    return recording


def worker_gone(_kind: str, seed: int) -> Recording:
    """The consumer's deliveries stop and the backlog grows. In health a batch waits for at most five seconds."""
    world = CloudflareWorld("worker_gone", seed)
    world.sim.at_s(FAULT_S, lambda: world.queue.change(paused=True))
    recording = world.run(allowed=DEATH)
    delivered = (d.at for d in recording.history.of("orders").deliveries)
    first = first_pause(delivered, ms(FAULT_S), world.queue.settings.max_batch_timeout_s + longest_pause_s(RATE_PER_S))
    recording.labels.append(Label("consumers_dead", "orders", ms(FAULT_S), None, first, expected=("QueueStalled",)))
    return recording


def _failing(recording: Recording, fault: str, *expected: str) -> Recording:
    first = first_failure(recording.history.of("orders").deliveries, ms(FAULT_S))
    recording.labels.append(Label(fault, "orders", ms(FAULT_S), None, first, expected=expected))
    return recording


CLOUDFLARE_FAULTS = {f.__name__: f for f in (worker_storm, worker_broken, worker_loses, worker_gone)}
CLOUDFLARE_HEALTHY = {f.__name__: f for f in (worker_healthy, worker_retries_late)}
