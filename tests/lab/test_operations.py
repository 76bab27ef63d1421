"""Scenarios about operators, schedules and the telemetry itself do what their labels say."""

from __future__ import annotations

import pytest

from lab.arrival_order import ArrivedEvent, in_arrival_order
from lab.incidents import ALL, EXPECTED_DETECTIONS
from lab.recording import Recording
from lab.scenarios import operations, reporting
from lab.scenarios.operations import lost_without_dead_letters, purged_by_mistake, purged_on_purpose, quarter_hourly, redriven
from lab.scenarios.operations import worker_paused as paused
from lab.scenarios.reporting import AHEAD_S, clock_ahead, collector_dead, events_late, instrumentation_of
from lab.simulation import T0_MS, ms
from lab.telemetry import INSTRUMENTATIONS, arrived_events, seen
from streaming.core.events.ahead import AHEAD_MS
from streaming.core.settings import Settings
from streaming.judge.findings.signals import SIGNAL_NAMES

FULL = INSTRUMENTATIONS["full"]


def departures(recording: Recording, how: str, queue: str = "orders") -> list[float]:
    """Return when messages left in this way, in seconds since the beginning."""
    return [(e.at - T0_MS) / 1000 for e in recording.history.of(queue).departures if e.how == how]


@pytest.mark.simulation
def test_an_accidental_purge_destroys_work_and_an_intended_one_leftovers() -> None:
    """One purge removes hundreds of messages during work, the other what is left a minute after everything stopped."""
    mistake, purpose = purged_by_mistake("standard", 1), purged_on_purpose("standard", 1)
    assert len(departures(mistake, "purged")) > 200
    assert set(departures(mistake, "purged")) == {1200}
    assert 0 < len(departures(purpose, "purged")) < 60
    assert purpose.labels == []
    for recording in (mistake, purpose):
        assert [e["queue"] for e in seen(recording, FULL) if e["type"] == "purged"] == ["orders"]


def test_without_a_dead_letter_queue_a_message_is_received_until_it_expires() -> None:
    """The label names the lost message; it expires 15 minutes after its send."""
    recording = lost_without_dead_letters("standard", 1)
    (label,) = recording.labels
    deliveries = [d for d in recording.history.of("orders").deliveries if d.message_id == label.message_id]
    assert len(deliveries) > 20
    assert label.from_ms == ms(2100)
    assert label.cause_ms == ms(1200)


def test_a_redrive_is_visible_only_to_the_collector_and_in_receives() -> None:
    """Sixty messages come back with new ids and without send events, and all are processed."""
    recording = redriven("standard", 1)
    events = seen(recording, FULL)
    sent = {e["message_id"] for e in events if e["type"] == "sent"}
    received = {e["message_id"] for e in events if e["type"] == "received"}
    assert len(received - sent) == 60
    tasks = [e["attributes"]["redrive_task"]["status"] for e in events if "redrive_task" in e.get("attributes", {})]
    assert tasks[0] == "RUNNING"
    assert tasks[-1] == "COMPLETED"
    assert len(departures(recording, "redriven", "orders-dlq")) == 60


def test_consumers_on_a_schedule_work_three_minutes_of_every_fifteen() -> None:
    """Nothing is received in between."""
    recording = quarter_hourly("standard", 1)
    received = [(d.at - T0_MS) / 1000 for d in recording.history.of("orders").deliveries]
    assert all((at - 720) % 900 <= 185 for at in received)
    assert len({int((at - 720) // 900) for at in received}) == 12
    assert recording.learning_s == 1800


def test_a_paused_queue_is_reported_as_paused() -> None:
    """The collector reports the pause for ten minutes."""
    reported = [
        (e["at"], e["attributes"].get("paused"))
        for e in seen(paused("", 1), FULL)
        if e.get("queue") == "orders" and e["type"] == "queue_state"
    ]
    assert {at for at, is_paused in reported if is_paused} == {ms(s) for s in range(1200, 1800, 30)}


def test_events_of_a_clock_that_is_ahead_get_their_arrival_time() -> None:
    """A live job does the same; a recording without arrival times cannot show it."""
    recording = clock_ahead("standard", 1)
    came = arrived_events(recording, instrumentation_of("clock_ahead", FULL))
    ahead = [a for a in came if a.event["at"] - a.came_ms == AHEAD_S * 1000]
    assert {a.event["type"] for a in ahead} == {"sent"}
    taken = in_arrival_order(came, Settings())
    assert taken.events[AHEAD_MS].to_pylist().count(AHEAD_S * 1000) == len(ahead)
    assert max(taken.events["at"].to_pylist()) <= recording.ends_at


@pytest.mark.simulation
def test_late_events_take_effect_when_they_arrive() -> None:
    """A fifth of the events arrives up to two minutes late."""
    came = arrived_events(events_late("standard", 1), instrumentation_of("events_late", FULL))
    late = [a.came_ms - a.event["at"] for a in came if a.came_ms > a.event["at"]]
    assert 0.15 < len(late) / len(came) < 0.25
    assert max(late) <= 120_000
    assert [a.came_ms for a in came] == sorted(a.came_ms for a in came)


def test_a_dead_collector_reports_nothing_more() -> None:
    """From the fault on it sends neither counts nor heartbeats, while the clients continue."""
    events = seen(collector_dead("standard", 1), instrumentation_of("collector_dead", FULL))
    assert max(e["at"] for e in events if e["type"] in ("queue_state", "heartbeat")) == ms(1170)
    assert max(e["at"] for e in events) > ms(3500)


def test_an_invalid_event_on_arrival_is_an_error_of_the_simulator() -> None:
    """An invalid event raises instead of being counted."""
    with pytest.raises(ValueError, match="cannot be read"):
        in_arrival_order([ArrivedEvent(T0_MS, {"v": 1, "type": "sent", "at": T0_MS})], Settings())


LABELLED = (
    *operations.FAULTS,
    *reporting.FAULTS,
    *("mq_slow", "mq_poison", "mq_broken", "worker_loses", "dead_letters_drained", "dead_letters_expiring"),
    *("poison_after_deploy", "retention_too_short"),
)


@pytest.mark.simulation
@pytest.mark.parametrize("name", LABELLED)
def test_every_fault_is_labelled_with_its_signal_and_the_time_it_is_detectable(name: str) -> None:
    """The order is cause, fault, earliest detection; the label has a signal that names the fault, and an aim."""
    recording = ALL[name]("standard", 5)
    for label in recording.labels:
        assert label.fault in EXPECTED_DETECTIONS
        assert (label.cause_ms or label.from_ms) <= label.from_ms <= label.detectable_ms <= recording.ends_at
        assert label.expected or EXPECTED_DETECTIONS[label.fault].signals
        assert recording.allowed.union(label.expected) <= set(SIGNAL_NAMES), "an alert of Prometheus alone is no signal"
