"""A purge that destroyed messages nobody had processed is reported once per queue, and an empty one is not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from streaming.judge.findings.signals import Finding
from tests.core.driving import T0, event
from tests.judge.driving import SETTINGS, Step, in_steps, judged

Events = list[dict[str, Any]]
PURGED_S = 100


def waiting(n: int, queue: str = "orders") -> Events:
    """Return messages that are sent in the first minute and wait."""
    return [event("sent", 1_000 * i, queue, message_id=f"m{i}") for i in range(n)]


def done(n: int, queue: str = "orders") -> Events:
    """Return messages that are sent, received and deleted in the first minute."""
    events = [event("sent", 500 + 1_000 * i, queue, message_id=f"done{i}") for i in range(n)]
    events += [event("received", 600 + 1_000 * i, queue, message_id=f"done{i}") for i in range(n)]
    return events + [event("deleted", 700 + 1_000 * i, queue, message_id=f"done{i}") for i in range(n)]


def purge(at_s: float = PURGED_S, queue: str = "orders") -> dict[str, Any]:
    return event("purged", round(at_s * 1_000), queue)


def purged(events: Events, until_s: int = 150, settings: Settings = SETTINGS, every_s: int = 10, **how: Any) -> list[Finding]:
    """Return what of the signal fires at the end."""
    return judged(in_steps(events, every_s, until_s), settings, **how).firing("QueuePurged")


def changes(events: Events, until_s: int = 700, settings: Settings = SETTINGS, every_s: int = 10) -> list[tuple[int, str]]:
    """Return when the signal changed, in seconds."""
    seen = judged(in_steps(events, every_s, until_s), settings).changes_seen()
    return [(at // 1_000, status) for at, signal, status, _ in seen if signal == "QueuePurged"]


def quiet_for(seconds: float) -> Settings:
    return Settings(now_is_event_time=True, defaults=Thresholds(dropped_quiet_s=seconds))


def test_what_was_destroyed_is_counted() -> None:
    """Waiting messages count, processed ones do not, and those that had been delivered are counted separately."""
    returned = [event("received", 70_000, message_id="m0"), event("released", 71_000, message_id="m0")]
    (finding,) = purged([*waiting(12), *done(5), *returned, purge()])
    assert (finding.severity, finding.since_ms) == ("info", T0 + PURGED_S * 1_000)
    assert finding.evidence == {
        "purged": 12,
        "purged_exact": True,
        "received": 1,
        "purges": 1,
        "purged_at": T0 + PURGED_S * 1_000,
        "oldest_age_s": 100.0,
        "summary": "A purge removed 12 messages from orders that nobody had processed; the oldest had been sent 100 s earlier.",
        "basis": "messages",
    }


def test_it_ends_after_the_quiet_time() -> None:
    """The purge is one moment; the signal lasts as long as that of a loss."""
    assert changes([*waiting(3), purge()]) == [(100, "firing"), (400, "resolved")]


@pytest.mark.simulation
def test_an_empty_purge_is_no_finding() -> None:
    """Nothing is there, everything was processed, or what is there was sent after the purge."""
    assert changes([purge()]) == []
    assert changes([*done(5), purge()]) == []
    assert changes([*done(5), purge(), event("sent", 120_000, message_id="later")], 400) == []


@pytest.mark.simulation
def test_work_that_is_finished_in_spite_of_the_purge_is_not_destroyed() -> None:
    """A message in flight counts once its window is over without an acknowledgement."""
    state = event("queue_state", 0, attributes={"visibility_timeout_s": 60})
    held = [event(kind, at, message_id=m) for m in "ab" for kind, at in (("sent", 80_000), ("received", 90_000))]
    assert changes([state, *held, purge(), *(event("deleted", 130_000, message_id=m) for m in "ab")]) == []
    assert changes([state, *held, purge(), event("deleted", 130_000, message_id="a")]) == [(150, "firing"), (400, "resolved")]
    (finding,) = purged([state, *held, purge(), event("deleted", 130_000, message_id="a")], 200)
    assert finding.evidence["purged"] == 1


def test_a_message_delivered_after_the_purge_was_not_destroyed() -> None:
    """SQS takes up to a minute to delete the messages, and may deliver some until then."""
    (finding,) = purged([*waiting(3), purge(), event("received", 110_000, message_id="m2")])
    assert finding.evidence["purged"] == 2


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(3))
def test_repeated_and_in_any_order_it_is_the_same(seed: int) -> None:
    """Over several shards and after restarts, too; everything is reported within the lateness."""
    events = [*waiting(40), *done(5), purge(), event("deleted", 99_000, message_id="m7")]
    (straight,) = purged(events)
    shuffled = [*events, *events[::3]]
    Random(seed).shuffle(shuffled)
    steps: list[Step] = [(at, []) for at in range(0, 100_000, 10_000)]
    steps += [(100_000 + 10_000 * i, shuffled[i::4]) for i in range(4)]
    (found,) = judged([*steps, (150_000, [])], shards=3, restart=True).firing("QueuePurged")
    assert found == straight
    assert found.evidence["purged"] == 39


@pytest.mark.simulation
def test_a_purge_that_becomes_known_late_is_reported_for_the_whole_quiet_time() -> None:
    """Its event arrives eight minutes late."""
    steps = [(t, events) for t, events in in_steps(waiting(3), 10, 1_000)]
    steps = [(t, [purge()] if t == 580_000 else events) for t, events in steps]
    seen = [(at // 1_000, status) for at, signal, status, _ in judged(steps).changes_seen() if signal == "QueuePurged"]
    assert seen == [(580, "firing"), (880, "resolved")]


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 3])
def test_the_count_stays_when_the_rows_are_gone(shards: int) -> None:
    """The signal lasts longer than events may be late, and a second purge comes after that: both are in the finding."""
    settings = quiet_for(3_600)
    again = [event("sent", 1_000_000 + i, message_id=f"n{i}") for i in range(5)]
    events = [*waiting(20), purge(), *again, purge(1_100)]
    busy = [e for i in range(300) for e in done(1, "other") if i]
    (finding,) = purged([*events, *busy], 2_500, settings, every_s=50, shards=shards, restart=True)
    assert (finding.evidence["purged"], finding.evidence["purges"]) == (25, 2)
    assert finding.evidence["summary"].startswith("2 purges removed 25 messages from orders")
    assert changes(events, 5_000, settings, every_s=50) == [(100, "firing"), (4_700, "resolved")]


def test_dead_letters_destroyed_are_called_so() -> None:
    """A purge of the dead-letter queue destroys what nobody looked into."""
    moved = [event("dead_lettered", 60_000 + i, message_id=f"m{i}", to_queue="orders-dlq") for i in range(3)]
    (finding,) = purged([*waiting(3), *moved, purge(queue="orders-dlq")])
    assert finding.key.queue == "orders-dlq"
    assert finding.evidence["summary"].startswith("A purge removed 3 dead letters from orders-dlq that nobody had processed")


def test_where_sends_are_not_reported_it_is_a_lower_bound() -> None:
    """Only messages that were delivered are known then."""
    seen = [event("received", 1_000 * i, message_id=f"m{i}", invisible_until=T0 + 70_000) for i in range(4)]
    (finding,) = purged([*seen, event("deleted", 50_000, message_id="m3"), purge()])
    assert (finding.evidence["basis"], finding.evidence["purged"], finding.evidence["purged_exact"]) == ("consumers", 3, False)
    assert "at least 3 messages" in finding.evidence["summary"]


def test_where_nobody_reports_acknowledgements_nothing_is_claimed() -> None:
    """With counts that say that the messages leave, each of those tracked may have been processed unseen."""
    counts = [event("queue_state", 30_000 * i, attributes={"visible": 0, "in_flight": 0, "delayed": 0}) for i in range(5)]
    run = judged(in_steps([*waiting(60), *counts, event("sent", 99_000, message_id="last"), purge()], 10, 200))
    assert {view.basis for view in run.snapshots[-1].queues} == {"producers"}
    assert run.firing("QueuePurged") == []
