"""The generated load is realistic: consistent lifecycles in time order, reproducible by seed, with exact counts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from sources.wire import decode_records
from tests.benchmarks.lifecycles import Lifecycles
from tests.benchmarks.records import FORMS, Form, records
from tests.benchmarks.shape import Shape

Event = dict[str, Any]

BUSY = Shape(
    queues=12,
    groups_per_queue=20,
    events_per_s=200,
    redelivered_ratio=0.2,
    poison_ratio=0.03,
    extended_ratio=0.1,
    held_ratio=0.01,
)
"""Everything happens often, and FIFO groups are busy enough to wait."""


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Five minutes of a busy load, in order."""
    tables = islice(Lifecycles(BUSY).windows(), 60)
    return [event for table in tables for event in table.to_pylist()]


def test_a_seed_gives_the_same_load_and_another_seed_another_load() -> None:
    """Figures of different days are comparable because the events are the same."""
    first, again = Lifecycles(BUSY).take(5_000), Lifecycles(BUSY).take(5_000)
    other = Lifecycles(Shape(seed=2)).take(5_000)
    assert first.equals(again)
    assert not set(first["message_id"].to_pylist()) & (set(other["message_id"].to_pylist()) - {None})


@pytest.mark.slow
def test_events_are_in_time_order(events: list[Event]) -> None:
    """Windows follow one another, and events are sorted within each."""
    times = [event["at"] for event in events]
    assert times == sorted(times)


@pytest.mark.slow
def test_every_kind_of_event_occurs(events: list[Event]) -> None:
    """The load has every transition, including poison and redrive."""
    seen = Counter(event["type"] for event in events)
    for kind in ("sent", "received", "extended", "released", "deleted", "dead_lettered", "redriven"):
        assert seen[kind] > 10, kind
    assert "lapsed" not in seen


@pytest.mark.slow
def test_every_life_is_consistent(events: list[Event]) -> None:
    """A message is sent first, receive counts rise by one after each window, and nothing follows the end."""
    lives: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["message_id"]:
            lives[event["message_id"]].append(event)
    reborn = {event["new_message_id"] for event in events if event["new_message_id"]}
    for message_id, life in lives.items():
        assert life[0]["type"] == "sent" or message_id in reborn
        until = receives = 0
        for event in life:
            if event["type"] == "received":
                receives += 1
                assert event["receive_count"] == receives
                assert event["at"] >= until
                until = event["invisible_until"]
            elif event["type"] == "extended":
                assert event["at"] < until < event["invisible_until"]
                until = event["invisible_until"]
            elif event["type"] == "released":
                assert event["at"] < until
                until = event["at"]
            elif event["type"] == "deleted":
                assert event is life[-1]
                assert event["at"] < until
            elif event["type"] == "dead_lettered":
                assert event["at"] >= until
                assert {later["type"] for later in life[life.index(event) + 1 :]} <= {"redriven"}


def test_a_group_is_delivered_one_message_after_another(events: list[Event]) -> None:
    """In an ordered queue a message is first received once all before it in its group are settled."""
    open_in: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    waited = 0
    for event in events:
        if event["group"] is None or event["type"] == "redriven":
            continue
        lane = open_in[event["queue"], event["group"]]
        if event["type"] == "sent":
            lane.append(event["message_id"])
            waited += len(lane) > 1
        elif event["message_id"] in lane:  # a redriven message is no longer in its old place
            assert lane[0] == event["message_id"]
            if event["type"] in ("deleted", "dead_lettered"):
                lane.pop(0)
    assert waited > 100


def test_the_broker_reports_exact_counts(events: list[Event]) -> None:
    """`visible` and `in_flight` of each report agree with a recount of the events so far."""
    where: dict[str, str] = {}
    until: dict[str, int] = {}
    compared = 0
    for event in events:
        message_id = event["message_id"]
        match event["type"]:
            case "sent":
                where[message_id] = event["queue"]
            case "received" | "extended":
                until[message_id] = event["invisible_until"]
            case "released":
                until.pop(message_id)
            case "deleted":
                del where[message_id], until[message_id]
            case "dead_lettered":
                where[message_id] = event["to_queue"]
                until.pop(message_id, None)
            case "redriven":
                del where[message_id]
                where[event["new_message_id"]] = event["to_queue"]
            case "queue_state":
                reported = json.loads(event["attributes"])
                here = [m for m, queue in where.items() if queue == event["queue"]]
                in_flight = sum(until.get(m, 0) > event["at"] for m in here)
                # A window that ends in the millisecond of the report may be counted either way.
                assert reported["visible"] + reported["in_flight"] == len(here)
                assert abs(reported["in_flight"] - in_flight) <= 1
                compared += bool(here)
    assert compared > 50


def test_a_backlog_stays_as_large_as_asked() -> None:
    """`live` messages wait from the first table on, while messages come and go."""
    load = Lifecycles(Shape(live=20_000, events_per_s=4_000, queues=10))
    waiting = 0
    for number, table in enumerate(islice(load.windows(), 8)):
        kinds = Counter(table["type"].to_pylist())
        waiting += kinds["sent"] - kinds["deleted"]
        if number == 0:
            assert table.num_rows == 20_000
        # Messages in flight or failing are extra: one or two seconds of sends.
        assert 20_000 <= waiting <= 24_000


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_decoded_completely(form: Form) -> None:
    """The service's decoder accepts everything that the generator encodes, event for event."""
    table = Lifecycles(BUSY).take(25_000)
    values = list(records(table, form))
    expected_values = {
        "single": table.num_rows,
        "ndjson": -(-table.num_rows // 500),
        "arrow": -(-table.num_rows // 10_000),
    }
    assert len(values) == expected_values[form]
    decoded = decode_records(values)
    assert decoded.invalid == []
    shared = [name for name in table.column_names if name in decoded.events.column_names]

    def rows(events: pa.Table) -> Counter[str]:
        return Counter(json.dumps(row) for row in events.select(shared).to_pylist())

    assert rows(decoded.events) == rows(table)
