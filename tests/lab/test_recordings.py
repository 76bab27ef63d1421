"""Invariants of every simulated recording, with and without faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from lab.history import Delivery
from lab.recording import Recording
from lab.scenarios.activemq import mq_broken, mq_restarts
from lab.scenarios.cloudflare import worker_broken, worker_storm
from lab.scenarios.healthy import stopped_deploys
from lab.scenarios.incidents import broken_deploy, releases, window_too_short
from lab.scenarios.matrix import SCENARIOS, Scenario, consumers_dead, dead_letters, healthy_busy, poison
from lab.simulation import T0_MS

RECORDINGS: list[tuple[Scenario, str]] = [
    (consumers_dead, "standard"),
    (dead_letters, "fifo"),
    (broken_deploy, "standard"),
    (window_too_short, "standard"),
    (stopped_deploys, "fifo"),
    (worker_storm, "cloudflare"),
    (worker_broken, "cloudflare"),
    (mq_broken, "activemq"),
    (mq_restarts, "activemq"),
]
NAMES = [f"{scenario.__name__}-{kind}" for scenario, kind in RECORDINGS]


@cache
def recorded(scenario: Scenario, kind: str, seed: int = 3) -> Recording:
    """Return a recording, shared by several tests."""
    return scenario(kind, seed)


@pytest.mark.simulation
@pytest.mark.parametrize(("scenario", "kind"), RECORDINGS, ids=NAMES)
def test_no_message_is_lost_or_invented(scenario: Scenario, kind: str) -> None:
    """In each queue, entered = ended + unsettled; as many messages are dead-lettered as enter the dead-letter queue."""
    recording = recorded(scenario, kind)
    queues = recording.history.queues
    for queue in queues.values():
        assert queue.entered == len(queue.departures) + queue.counts(recording.ends_at).unsettled
        assert max(Counter(e.message_id for e in queue.departures).values(), default=1) == 1
    main = next(q for name, q in queues.items() if "dlq" not in name.lower())
    moved = sum(1 for e in main.departures if e.how == "dead_lettered")
    assert moved == sum(q.entered for name, q in queues.items() if "dlq" in name.lower())
    if recording.system != "cloudflare_queues":  # a send to a Worker's queue returns no id
        of_main = (r.event for r in recording.reports if r.event["queue"] == main.name)
        assert main.entered == sum(1 for reported in of_main if reported["type"] == "sent")


@pytest.mark.simulation
@pytest.mark.parametrize(("scenario", "kind"), RECORDINGS, ids=NAMES)
def test_receive_counts_rise_by_one_and_never_exceed_the_limit(scenario: Scenario, kind: str) -> None:
    """Counts are 1, 2, 3 … for each message, deliveries do not overlap, and there are at most maxReceiveCount.

    ActiveMQ repeats the count of a message that came back unread from a prefetch window.
    """
    recording = recorded(scenario, kind)
    for name, queue in recording.history.queues.items():
        by_message: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in queue.deliveries:
            by_message[delivery.message_id].append(delivery)
        limit = recording.settings[name].get("max_receive_count") or 1000
        for deliveries in by_message.values():
            counts = [d.receive_count for d in deliveries]
            if recording.system == "activemq":
                assert {counts[0]} | {after - before for before, after in pairwise(counts)} <= {0, 1}
            else:
                assert counts == list(range(1, len(deliveries) + 1))
            assert len(deliveries) <= limit
            assert all(before.ended_at <= after.at for before, after in pairwise(deliveries))


@pytest.mark.simulation
@pytest.mark.parametrize(("scenario", "kind"), [r for r in RECORDINGS if r[1] == "fifo"])
def test_groups_are_delivered_in_order_and_one_at_a_time(scenario: Scenario, kind: str) -> None:
    """First deliveries of a group follow its sequence, and none begins while another of the group is in flight."""
    recording = recorded(scenario, kind)
    sent = {r.message_id: r.event for r in recording.reports if r.event["type"] == "sent"}
    by_group: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in recording.history.of("orders.fifo").deliveries:
        by_group[sent[delivery.message_id]["group"]].append(delivery)
    assert len(by_group) > 10
    for deliveries in by_group.values():
        first = [int(sent[d.message_id]["sequence"]) for d in deliveries if d.receive_count == 1]
        assert first == sorted(first)
        assert all(before.ended_at <= after.at for before, after in pairwise(deliveries))


@pytest.mark.parametrize(("scenario", "kind"), [r for r in RECORDINGS if r[1] != "cloudflare"])
def test_the_recorded_truth_agrees_with_deliveries_and_ends(scenario: Scenario, kind: str) -> None:
    """Counts and oldest ages at random instants are computed a second way.

    They follow from sends (a Worker reports none), deliveries and ends.
    """
    recording = recorded(scenario, kind)
    name, queue = next((n, q) for n, q in recording.history.queues.items() if "dlq" not in n.lower())
    of_queue = [r for r in recording.reports if r.event["queue"] == name]
    sent = {r.message_id: r.event["at"] for r in of_queue if r.event["type"] == "sent"}
    ended = {e.message_id: e.at for e in queue.departures}
    random = Random(name)
    for _ in range(20):
        at = random.randrange(T0_MS, recording.ends_at)
        here = {m for m, since in sent.items() if m is not None and since <= at < ended.get(m, at + 1)}
        in_flight = {d.message_id for d in queue.deliveries if d.at <= at < d.ended_at}
        assert in_flight <= here
        counts = queue.counts(at)
        assert (counts.unsettled, counts.in_flight) == (len(here), len(in_flight))
        assert queue.oldest_sent_at(at) == min((sent[m] for m in here), default=None)
        visible = [sent[m] for m in here - in_flight]
        assert queue.oldest_sent_at(at, visible_only=True) == min(visible, default=None)


@pytest.mark.simulation
def test_the_same_seed_gives_the_same_recording_and_another_seed_another() -> None:
    """Reports and labels are compared."""
    first, again, other = (releases("standard", seed) for seed in (5, 5, 6))
    assert first.reports == again.reports
    assert first.labels == again.labels
    assert first.reports[:50] != other.reports[:50]


def test_a_healthy_queue_settles_everything_at_the_first_delivery() -> None:
    """Nothing fails by itself: there is no redelivery, no dead letter, and hardly any backlog at the end."""
    queue = recorded(healthy_busy, "standard").history.of("orders")
    assert {d.receive_count for d in queue.deliveries} == {1}
    assert {e.how for e in queue.departures} == {"deleted"}
    assert queue.counts(recorded(healthy_busy, "standard").ends_at).unsettled < 60


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_labels_describe_the_fault(kind: str) -> None:
    """The poison message is the oldest for the rest of the hour, and it is detectable once a delivery of it takes too long."""
    recording = recorded(poison, kind)
    (label,) = recording.labels
    queue = recording.history.of(label.queue)
    assert queue.oldest_sent_at(recording.ends_at) == label.from_ms
    first = next(d for d in queue.deliveries if d.message_id == label.message_id)
    assert first.at < label.detectable_ms < first.ended_at, "its window has not ended yet"
    assert (label.group is not None) == (kind == "fifo")


@pytest.mark.simulation
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_faults_are_labelled_and_healthy_scenarios_are_not(scenario: Scenario) -> None:
    """Times lie within the recording, and a fault is not detectable before it begins."""
    recording = recorded(scenario, "standard")
    healthy = scenario.__name__ in ("healthy_busy", "healthy_idle", "burst", "batch_consumer")
    assert bool(recording.labels) != healthy
    for label in recording.labels:
        assert T0_MS < label.from_ms <= label.detectable_ms <= recording.ends_at
