"""What operators do to queues, on purpose and by mistake; and consumers on a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lab.consumer import lognormal
from lab.producer import steady, stepwise
from lab.recording import Recording
from lab.scenarios.cloudflare import CloudflareWorld
from lab.scenarios.matrix import FAULT_S, HOUR_S, POISON, SERVICE_S, USUAL_PER_S, Scenario, send_bad
from lab.simulation import T0_MS, ms
from lab.world import World


def purged_by_mistake(kind: str, seed: int) -> Recording:
    """An operator purges a queue with some hundred messages in the middle of the work: none of them was processed."""
    world = World("purged_by_mistake", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    producer.burst(FAULT_S - 60, 400)
    world.consume(lognormal(SERVICE_S))
    world.sim.at_s(FAULT_S, partial(_purge, world))
    world.label("purged_by_mistake", FAULT_S, FAULT_S, "QueuePurged")
    return world.run()


def lost_without_dead_letters(kind: str, seed: int) -> Recording:
    """Without a dead-letter queue and with a retention of 15 minutes, a poison message is received until it expires."""
    world = World(
        "lost_without_dead_letters", kind, seed, HOUR_S, max_receive_count=None, dead_letter_queue=None, retention_s=900
    )
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON | {"MessageDropped"})
    bad = next(m for m in producer.sent if m.fails_on)
    lost = next(e for e in world.history.of(world.queue.name).departures if e.message_id == bad.id)
    lost_s = (lost.at - T0_MS) / 1000
    world.label("lost", lost_s, lost_s, "MessageDropped", message_id=bad.id, cause_s=FAULT_S)
    return recording


FAULTS: Mapping[str, Scenario] = {f.__name__: f for f in (purged_by_mistake, lost_without_dead_letters)}


def purged_on_purpose(kind: str, seed: int) -> Recording:
    """Maintenance: senders pause, consumers stop, the rest is purged a minute later, and all start again."""
    world = World("purged_on_purpose", kind, seed, HOUR_S)
    world.produce(stepwise((0, USUAL_PER_S), (FAULT_S + 20, 0.0), (FAULT_S + 120, USUAL_PER_S)), USUAL_PER_S)
    for consumer in world.consume(lognormal(SERVICE_S)):
        world.sim.at_s(FAULT_S, consumer.stop)
        world.sim.at_s(FAULT_S + 120, consumer.start)
    world.sim.at_s(FAULT_S + 60, partial(_purge, world))
    return world.run()


def redriven(kind: str, seed: int) -> Recording:
    """Sixty dead letters of last week are redriven to their queue, whose consumers can process them now.

    No client sends them: the collector reads the task, and the first event of each message is its receive.
    """
    world = World("redriven", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    parked = world.dead_letters
    assert parked is not None
    for n in range(60):
        parked.send(group=f"customer-{n % 40:02d}" if kind == "fifo" else None)
    per_s, done_s = 2.0, FAULT_S + 30.0
    world.sim.at_s(FAULT_S, lambda: parked.redrive(world.queue, per_s))
    recording = world.run(frozenset({"DeadLetterArrived"}))
    task = {"started_at": ms(FAULT_S), "to_queue": world.queue.name, "to_move": 60}
    recording.changes = [
        (ms(FAULT_S), parked.name, {"redrive_task": {**task, "status": "RUNNING", "moved": 0, "progressed_at": ms(FAULT_S)}}),
        (ms(done_s), parked.name, {"redrive_task": {**task, "status": "COMPLETED", "moved": 60}}),
    ]
    return recording


def quarter_hourly(kind: str, seed: int) -> Recording:
    """Consumers that run for three minutes in every fifteen, for three hours. The first cycle may page once."""
    world = World("quarter_hourly", kind, seed, 3 * HOUR_S)
    world.produce(steady(0.1), 0.1)
    for consumer in world.consume(lognormal(SERVICE_S)):
        consumer.stop()
        for begin_s in range(720, int(3 * HOUR_S), 900):
            world.sim.at_s(begin_s, consumer.start)
            world.sim.at_s(begin_s + 180, consumer.stop)
    recording = world.run()
    recording.learning_s = 1800.0
    return recording


def worker_paused(_kind: str, seed: int) -> Recording:
    """Cloudflare: delivery is paused for ten minutes, and the collector reports the pause."""
    world = CloudflareWorld("worker_paused", seed)
    world.sim.at_s(FAULT_S, lambda: world.queue.change(paused=True))
    world.sim.at_s(FAULT_S + 600, lambda: world.queue.change(paused=False))
    recording = world.run()
    recording.changes = [(ms(FAULT_S), "orders", {"paused": True}), (ms(FAULT_S + 600), "orders", {"paused": False})]
    return recording


HEALTHY: Mapping[str, Scenario] = {f.__name__: f for f in (purged_on_purpose, redriven, quarter_hourly, worker_paused)}


def _purge(world: World) -> None:
    world.queue.purge()
    world.operate("purged", world.queue)
