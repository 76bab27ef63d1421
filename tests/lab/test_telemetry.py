"""What is instrumented determines which events are seen, and does not change anything else of the recording."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from lab.recording import Recording
from lab.scenarios.matrix import consumers_dead
from lab.simulation import T0_MS, ms
from lab.telemetry import CHANGEOVERS, INSTRUMENTATIONS, Instrumentation, polled, seen
from sources.wire import decode_records, encode_ndjson


@cache
def recording() -> Recording:
    """Consumers die at minute 20 of an hour."""
    return consumers_dead("fifo", 2)


def types(instrumentation: Instrumentation) -> Counter[str]:
    """Return how many events of each type are seen."""
    return Counter(reported["type"] for reported in seen(recording(), instrumentation))


def test_every_event_is_valid() -> None:
    """The service's decoder accepts all of them."""
    events = seen(recording(), INSTRUMENTATIONS["full"])
    decoded = decode_records([encode_ndjson(events)])
    assert not decoded.invalid
    assert len(decoded.events) == len(events)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("attributes", {"queue_state", "heartbeat"}),
        ("producers", {"queue_state", "heartbeat", "sent"}),
        ("consumers", {"queue_state", "heartbeat", "received", "deleted"}),
        ("full", {"queue_state", "heartbeat", "sent", "received", "deleted"}),
    ],
)
def test_a_side_that_is_not_instrumented_reports_nothing(name: str, kinds: set[str]) -> None:
    """The collector reads each of the two queues every 30 s in any case."""
    found = types(INSTRUMENTATIONS[name])
    assert set(found) == kinds
    assert found["queue_state"] == 2 * found["heartbeat"] == 2 * 121


def test_samples_are_by_message_on_both_sides() -> None:
    """A sample has a quarter of the messages, with all events of each."""
    full = seen(recording(), INSTRUMENTATIONS["full"])
    sample = seen(recording(), INSTRUMENTATIONS["sample25"])
    chosen = {reported["message_id"] for reported in sample if "message_id" in reported}
    everything = {reported["message_id"] for reported in full if "message_id" in reported}
    assert 0.2 < len(chosen) / len(everything) < 0.3
    assert [t for t in full if t.get("message_id") in chosen] == [t for t in sample if "message_id" in t]


def test_one_of_two_consumers_reports_only_its_own() -> None:
    """All sends are reported, and about half of the receives."""
    events = seen(recording(), INSTRUMENTATIONS["one_of_two"])
    assert {reported["consumer"] for reported in events if reported["type"] in ("received", "deleted")} == {"worker-1"}
    assert types(INSTRUMENTATIONS["one_of_two"])["sent"] == types(INSTRUMENTATIONS["full"])["sent"]


def test_counts_are_exact_or_off_by_five_percent_or_a_minute_old() -> None:
    """Counts are compared with the truth at each poll."""
    history = recording().history.of("orders.fifo")
    instrumentation = INSTRUMENTATIONS["attributes"]
    exact, noisy, late = (
        polled(seen(recording(), instrumentation.with_counts(c)), "orders.fifo") for c in ("exact", "noisy", "late")
    )
    assert all(said == history.counts(at) for at, said in exact.items())
    assert all(said == history.counts(max(T0_MS, at - 60_000)) for at, said in late.items())
    off = [abs(noisy[at].visible - said.visible) / said.visible for at, said in exact.items() if said.visible > 100]
    assert 0.02 < max(off) <= 0.055


@pytest.mark.parametrize(
    ("name", "chosen", "from_s", "until_s"),
    [
        ("producer_joins", "sent", 1800, 3600),
        ("consumers_join", "received", 1800, 3600),
        ("producer_leaves", "sent", 0, 1800),
        ("collector_dies", "queue_state", 0, 2400),
    ],
)
def test_changeovers_happen_at_their_minute(name: str, chosen: str, from_s: float, until_s: float) -> None:
    """There is nothing before or after, and the same events in between."""
    whole = [
        t for t in seen(recording(), INSTRUMENTATIONS["full"]) if t["type"] == chosen and ms(from_s) <= t["at"] < ms(until_s)
    ]
    assert [t for t in seen(recording(), CHANGEOVERS[name]) if t["type"] == chosen] == whole


def test_late_repeated_and_skewed_events() -> None:
    """Events arrive out of order and twice, with the sender's time, and none is lost."""
    instrumentation = Instrumentation("rough", late_ratio=0.3, late_s=60, repeated_ratio=0.1, skew_s={"worker-2": 5.0})
    straight, rough = seen(recording(), INSTRUMENTATIONS["full"]), seen(recording(), instrumentation)

    def key(reported: dict[str, Any]) -> tuple[Any, ...]:
        return (
            reported["type"],
            reported.get("message_id"),
            reported.get("receive_count"),
            reported.get("queue"),
            reported.get("consumer"),
        )

    assert {key(t) for t in straight} == {key(t) for t in rough}
    assert 1.05 < len(rough) / len(straight) < 1.12
    assert [t["at"] for t in rough] != sorted(t["at"] for t in rough)
    first = next(t for t in straight if t.get("consumer") == "worker-2")
    assert next(t for t in rough if key(t) == key(first))["at"] == first["at"] + 5000
