"""Further faults, one queue each. An hour unless said otherwise; they begin at minute 20."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from lab.consumer import Consumer, lognormal
from lab.earliest import first_rush, longest_work_s
from lab.producer import steady
from lab.recording import Recording
from lab.report import Report
from lab.scenarios.matrix import (
    AFTERMATH,
    FAULT_S,
    HOUR_S,
    POISON,
    SERVICE_S,
    USUAL_PER_S,
    Scenario,
    bad_message_detectable_ms,
    consumers_dead,
    one_consumer_dead,
    poison,
    send_bad,
)
from lab.simulation import T0_MS, ms
from lab.world import World

TENANTS = 40


def hung_consumer(kind: str, seed: int) -> Recording:
    """A thread of worker-2 processes one message for ever and keeps extending its window."""
    world = World("hung_consumer", kind, seed, HOUR_S)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    _, second = world.consume(lognormal(SERVICE_S), extend_every_s=20)
    world.sim.at_s(FAULT_S, second.hang)
    recording = world.run(frozenset({"MessageHeldTooLong", "GroupStuck"}))
    main = world.history.of(world.queue.name)
    held = next(d for d in main.deliveries if d.at >= T0_MS + FAULT_S * 1000 and d.outcome == "open" and d.consumer == "worker-2")
    from_s = (held.at - T0_MS) / 1000
    world.label("hung_consumer", from_s, from_s + longest_work_s(SERVICE_S), "SlowConsumer", consumer=held.consumer)
    return recording


def dead_letters_drained(kind: str, seed: int) -> Recording:
    """An unwatched job removes dead letters within a minute: the depth of the queue shows nothing."""
    world = World("dead_letters_drained", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    assert world.dead_letters is not None
    unseen: list[Report] = []
    Consumer(world.sim, "drain", world.dead_letters, unseen, lognormal(20.0), threads=1)
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON)
    bad = next(m for m in producer.sent if m.fails_on)
    moved = next(e for e in world.history.of(world.queue.name).departures if e.message_id == bad.id)
    moved_s = (moved.at - T0_MS) / 1000
    world.label("dead_letters_drained", moved_s, moved_s, "DeadLetterArrived", message_id=bad.id, cause_s=FAULT_S)
    return recording


def dead_letters_expiring(kind: str, seed: int) -> Recording:
    """A dead-letter queue that keeps messages for 40 minutes: a quarter of that is left half an hour after the send."""
    retention_s = 2400.0
    world = World("dead_letters_expiring", kind, seed, HOUR_S, dead_letter_retention_s=retention_s, retention_s=1800)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    send_bad(world, producer, FAULT_S)
    recording = world.run(POISON | {"DeadLetterExpiring", "MessageDropped"})
    bad = next(m for m in producer.sent if m.fails_on)
    clock = bad.arrived_at if kind == "fifo" else bad.sent_at
    due_s = (clock - T0_MS) / 1000 + 0.75 * retention_s
    world.label("dead_letters_expiring", due_s, due_s, "DeadLetterExpiring", message_id=bad.id, cause_s=FAULT_S)
    return recording


def retention_too_short(kind: str, seed: int) -> Recording:
    """Consumers become four times slower with a retention of 15 minutes: messages expire unreceived.

    Some work outlives the visibility timeout, too, and on a FIFO queue those messages cannot be deleted any more.
    """
    world = World("retention_too_short", kind, seed, HOUR_S, retention_s=900)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    for consumer in world.consume(lognormal(SERVICE_S)):
        world.sim.at_s(FAULT_S, partial(consumer.change, slow_factor=4.0))
    recording = world.run(AFTERMATH | POISON | {"MessageDropped", "WindowTooShort", "QueueFailing"})
    lost = min(e.at for e in world.history.of(world.queue.name).departures if e.how == "expired")
    lost_s = (lost - T0_MS) / 1000
    world.label("retention_too_short", lost_s, lost_s, "MessageDropped", cause_s=FAULT_S)
    return recording


def look_ahead_saturated(kind: str, seed: int) -> Recording:
    """FIFO: 600 messages of one customer are queued behind one that cannot be processed, and the look-ahead is 500."""
    world = World("look_ahead_saturated", kind, seed, HOUR_S, look_ahead=500, max_receive_count=None, dead_letter_queue=None)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))

    def send(**particulars: Any) -> None:
        producer.send(group="customer-07", **particulars)

    world.sim.at_s(FAULT_S, lambda: send(fails_on="*"))
    for n in range(600):
        world.sim.at_s(FAULT_S + 1 + n / 60, send)
    full_s = FAULT_S + 1 + 500 / 60
    world.label("look_ahead_saturated", full_s, full_s, "LookAheadSaturated", group="customer-07", cause_s=FAULT_S)
    return world.run(POISON | AFTERMATH | {"LookAheadSaturated", "ConcurrencyCollapsed", "QueueStalled"})


def group_hogs(kind: str, seed: int) -> Recording:
    """FIFO: 900 messages of one customer fill the look-ahead of 300 and are processed one by one; the others wait."""
    world = World("group_hogs", kind, seed, HOUR_S, look_ahead=300)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    for n in range(900):
        world.sim.at_s(FAULT_S + n / 90, lambda: producer.send(group="customer-07"))
    full_s = FAULT_S + 300 / 90
    about = {"group": "customer-07", "cause_s": FAULT_S}
    world.label("group_hogs", full_s, full_s, "ConcurrencyCollapsed", "LookAheadSaturated", **about)
    return world.run(AFTERMATH | {"LookAheadSaturated", "GroupStuck"})


def noisy_tenant(kind: str, seed: int) -> Recording:
    """A fair queue: one of forty tenants sends 400 long jobs, and takes most of what is in flight."""
    world = World("noisy_tenant", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S, mark=_tenant)
    world.consume(lognormal(SERVICE_S), 4, threads=16, extend_every_s=20)
    for n in range(400):
        world.sim.at_s(FAULT_S + n / 40, lambda: producer.send(group="tenant-07", work_s=60.0))
    recording = world.run(AFTERMATH)
    sent = (m.sent_at for m in producer.sent if m.group == "tenant-07")
    detectable_s = (first_rush(sent, ms(FAULT_S), USUAL_PER_S / TENANTS) - T0_MS) / 1000
    world.label("noisy_tenant", FAULT_S, detectable_s, "NoisyGroup", group="tenant-07")
    return recording


def misconfigured_redrive(kind: str, seed: int) -> Recording:
    """maxReceiveCount 1: the first failure of any message dead-letters it. The fault exists from the start."""
    world = World("misconfigured_redrive", kind, seed, HOUR_S, max_receive_count=1)
    world.produce(steady(USUAL_PER_S), USUAL_PER_S)
    world.consume(lognormal(SERVICE_S))
    world.label("misconfigured_redrive", 0, 0, "QueueMisconfigured")
    return world.run()


def poison_after_deploy(kind: str, seed: int) -> Recording:
    """Only the new version cannot process one message in forty; all consumers have it from minute 20 on."""
    world = World("poison_after_deploy", kind, seed, HOUR_S)
    producer = world.produce(steady(USUAL_PER_S), USUAL_PER_S, mark=_sometimes_bad)
    for consumer in world.consume(lognormal(SERVICE_S)):
        world.sim.at_s(FAULT_S, partial(consumer.change, version="v2"))
    recording = world.run(POISON)
    bad = {m.id: m for m in producer.sent if m.fails_on}
    deliveries = [d for d in world.history.of(world.queue.name).deliveries if d.message_id in bad and d.at >= ms(FAULT_S)]
    first = bad[deliveries[0].message_id]
    detectable_s = (bad_message_detectable_ms(deliveries, first.id, SERVICE_S) - T0_MS) / 1000
    from_s = max(FAULT_S, (first.sent_at - T0_MS) / 1000)
    world.label("poison_after_deploy", from_s, detectable_s, "PoisonMessage", message_id=first.id, cause_s=FAULT_S)
    return recording


FAULTS: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        consumers_dead,
        one_consumer_dead,
        poison,
        hung_consumer,
        dead_letters_drained,
        dead_letters_expiring,
        retention_too_short,
        look_ahead_saturated,
        group_hogs,
        noisy_tenant,
        misconfigured_redrive,
        poison_after_deploy,
    )
}
ONLY_FIFO = frozenset({"look_ahead_saturated", "group_hogs"})
ONLY_STANDARD = frozenset({"noisy_tenant"})


def possible(name: str, kind: str) -> bool:
    """Whether a scenario makes sense for a kind of queue."""
    if name.startswith(("worker_", "mq_")):
        return kind == "standard"
    return not (name in ONLY_FIFO and kind != "fifo") and not (name in ONLY_STANDARD and kind != "standard")


def _tenant(random: Random) -> dict[str, Any]:
    return {"group": f"tenant-{random.randrange(TENANTS):02d}"}


def _sometimes_bad(random: Random) -> dict[str, Any]:
    return {"fails_on": "v2"} if random.random() < 0.025 else {}
