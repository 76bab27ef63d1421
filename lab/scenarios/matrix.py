"""The eight scenarios run with every kind of instrumentation. One hour each; faults begin at minute 20."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lab.consumer import lognormal
from lab.earliest import first_failure, first_long_work, longest_pause_s, longest_work_s
from lab.history import Delivery
from lab.producer import Producer, steady
from lab.recording import Recording
from lab.simulation import T0_MS
from lab.world import World

HOUR_S = 3600.0
FAULT_S = 1200.0
SERVICE_S = 4.0
USUAL_PER_S = 1.25
BUSY_PER_S = 1.75
"""Two consumers of four threads settle up to two messages a second."""

Scenario = Callable[[str, int], Recording]
"""A function of the kind of queue (standard or fifo) and a seed."""

AFTERMATH = frozenset({"QueueLagging"})
"""Signals that any growing backlog may raise."""
DEATH = frozenset({"QueueStalled", "GroupStuck", "QueueSilent"}) | AFTERMATH
POISON = frozenset({"PoisonMessage", "GroupStuck", "DeadLetterArrived"})


def healthy_busy(kind: str, seed: int) -> Recording:
    """Seven eighths of the consumers' capacity: messages are nearly always visible."""
    world = World("healthy_busy", kind, seed, HOUR_S)
    world.produce(steady(BUSY_PER_S), BUSY_PER_S)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def healthy_idle(kind: str, seed: int) -> Recording:
    """A message every two minutes."""
    world = World("healthy_idle", kind, seed, HOUR_S)
    world.produce(steady(1 / 120), 1 / 120)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def consumers_dead(kind: str, seed: int) -> Recording:
    """Every consumer is killed at minute 20 and stays away."""
    world = World("consumers_dead", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    for consumer in world.consume(lognormal(SERVICE_S)):
        world.sim.at_s(FAULT_S, consumer.kill)
    detected_s = FAULT_S + longest_pause_s(USUAL_PER_S)
    world.label("consumers_dead", FAULT_S, detected_s, "QueueStalled")
    return world.run(DEATH)


def one_consumer_dead(kind: str, seed: int) -> Recording:
    """One of two consumers is killed: the other processes 1 of the 1.25 messages a second that arrive."""
    world = World("one_consumer_dead", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    _, second = world.consume(lognormal(SERVICE_S))
    world.sim.at_s(FAULT_S, second.kill)
    detected_s = FAULT_S + longest_pause_s(USUAL_PER_S / 2)
    world.label("one_consumer_dead", FAULT_S, detected_s, "QueueLagging", consumer=second.name)
    return world.run(AFTERMATH)


def poison(kind: str, seed: int) -> Recording:
    """One message that every consumer fails on stays in the queue, because there is no dead-letter queue."""
    world = World("poison", kind, seed, HOUR_S, max_receive_count=None, dead_letter_queue=None)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON)
    label_bad_messages(world, producer, SERVICE_S, "PoisonMessage", "GroupStuck")
    return recording


def dead_letters(kind: str, seed: int) -> Recording:
    """Three messages that every consumer fails on are dead-lettered, minutes apart."""
    world = World("dead_letters", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    for at_s in (FAULT_S, FAULT_S + 400, FAULT_S + 900):
        send_bad(world, producer, at_s)
    recording = world.run(POISON)
    label_bad_messages(world, producer, SERVICE_S, "DeadLetterArrived", "PoisonMessage")
    return recording


def burst(kind: str, seed: int) -> Recording:
    """400 messages within five seconds; the consumers catch up within ten minutes."""
    world = World("burst", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    producer.burst(FAULT_S, 400)
    world.consume(lognormal(SERVICE_S))
    return world.run()


def batch_consumer(kind: str, seed: int) -> Recording:
    """Consumers work the first 200 seconds of every 400, at four times the arrival rate."""
    world = World("batch_consumer", kind, seed, HOUR_S)
    world.produce(steady(0.8 * USUAL_PER_S), 0.8 * USUAL_PER_S)
    for consumer in world.consume(lognormal(SERVICE_S / 2)):
        for begin_s in range(0, int(HOUR_S), 400):
            world.sim.at_s(begin_s, consumer.start)
            world.sim.at_s(begin_s + 200, consumer.stop)
    return world.run()


SCENARIOS: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        healthy_busy,
        healthy_idle,
        consumers_dead,
        one_consumer_dead,
        poison,
        dead_letters,
        burst,
        batch_consumer,
    )
}


def send_bad(world: World, producer: Producer, at_s: float) -> None:
    world.sim.at_s(at_s, lambda: producer.send(fails_on="*"))


def label_bad_messages(world: World, producer: Producer, service_s: float, *expected: str) -> None:
    """Add one label per message that cannot be processed."""
    deliveries = world.history.of(world.queue.name).deliveries
    for message in producer.sent:
        if not message.fails_on:
            continue
        detectable_s = (bad_message_detectable_ms(deliveries, message.id, service_s) - T0_MS) / 1000
        sent_s = (message.sent_at - T0_MS) / 1000
        about = {"message_id": message.id} | ({"group": message.group} if message.group else {})
        world.label(world.name, sent_s, detectable_s, *expected, **about)


def bad_message_detectable_ms(deliveries: Sequence[Delivery], message_id: str, service_s: float) -> int:
    """Return when a message was first held for longer than others, or came back: no healthy queue here gives one back."""
    mine = [d for d in deliveries if d.message_id == message_id]
    return min(first_failure(mine, T0_MS), first_long_work(mine, T0_MS, longest_work_s(service_s)))
