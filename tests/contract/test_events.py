"""Each type of event and each of its fields: alone, absent, repeated, out of order, and with unusual names."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streaming.core.events.attributes import COUNT_ATTRIBUTES, FLAG_ATTRIBUTES, TEXT_ATTRIBUTES
from streaming.core.settings import Settings
from tests.contract.replaying import Lines, ev, ms, replayed
from tests.core.driving import T0, event, run_steps

Event = dict[str, Any]
STATES = ("visible", "in_flight", "delayed")
TOTALS = ("sent", "received", "deleted", "dead_lettered", "redriven", "expired", "dropped")


def reported(lines: Lines, at_s: float, queue: str = "q", **labels: str) -> dict[str, float]:
    """Return the depths and totals that are not zero at a time."""
    depth = {state: lines.metric("queue_messages", queue=queue, state=state, **labels) for state in STATES}
    totals = {total: lines.metric(f"messages_{total}_total", queue=queue, **labels) for total in TOTALS}
    return {name: series[at_s] for name, series in (depth | totals).items() if series.get(at_s)}


FIRST_KNOWN_FROM: list[tuple[str, Event, dict[str, float]]] = [
    ("sent", {}, {"visible": 1, "sent": 1}),
    ("sent", {"visible_at": ms(100)}, {"delayed": 1, "sent": 1}),
    ("sent", {"visible_at": ms(50)}, {"visible": 1, "sent": 1}),
    ("received", {}, {"visible": 1, "received": 1}),
    ("received", {"invisible_until": ms(61)}, {"in_flight": 1, "received": 1}),
    ("received", {"invisible_until": ms(60)}, {"visible": 1, "received": 1}),
    ("received", {"receive_count": 7}, {"visible": 1, "received": 1}),
    ("extended", {"invisible_until": ms(100)}, {"in_flight": 1}),
    ("extended", {}, {"visible": 1}),
    ("released", {}, {"visible": 1}),
    ("released", {"visible_at": ms(100)}, {"delayed": 1}),
    ("deleted", {}, {"deleted": 1}),
    ("dead_lettered", {"to_queue": "d"}, {"dead_lettered": 1}),
    ("redriven", {"to_queue": "s", "new_message_id": "new"}, {"redriven": 1}),
    ("expired", {"reason": "ttl"}, {"expired": 1}),
    ("dropped", {}, {"dropped": 1}),
]


@pytest.mark.parametrize(("kind", "fields", "expected"), FIRST_KNOWN_FROM, ids=[f"{k} {f or ''}" for k, f, _ in FIRST_KNOWN_FROM])
def test_a_message_is_known_from_whichever_event_comes_first(
    tmp_path: Path, kind: str, fields: Event, expected: dict[str, float]
) -> None:
    """It is in the state that the event put it in, its window ends by time (30 s if not reported), and repeats do not count."""
    one = ev(kind, 10, message_id="m", **fields)
    lines = replayed([ev("queue_state", 0, attributes={"kind": "standard"}), one, one], tmp_path, until_s=60)
    assert reported(lines, 60) == expected
    assert lines.metric("events_total", result="accepted")[60] == 2
    assert lines.metric("events_total", result="duplicate")[60] == 1
    ages = lines.metric("oldest_message_age_seconds", queue="q", scope="all")
    alive = bool(expected.keys() & set(STATES))
    assert ages.get(60) == (50 if alive else None)


def test_moves_reach_the_other_queue(tmp_path: Path) -> None:
    """A dead letter keeps its id and its age; a redriven message has a new id and a new age."""
    events = [
        ev("sent", 0, message_id="m"),
        ev("dead_lettered", 20, message_id="m", to_queue="d"),
        ev("redriven", 50, "d", message_id="m", to_queue="q", new_message_id="n"),
        ev("received", 70, message_id="n", receive_count=1),
        ev("deleted", 71, message_id="n"),
    ]
    lines = replayed(events, tmp_path, every="10s")
    assert reported(lines, 30, "d") == {"visible": 1}
    assert lines.metric("oldest_message_age_seconds", queue="d", scope="all")[30] == 30
    assert lines.metric("oldest_message_age_seconds", queue="d", scope="cloudwatch")[30] == 10
    assert reported(lines, 60) == {"visible": 1, "sent": 1, "dead_lettered": 1}
    assert reported(lines, 60, "d") == {"redriven": 1}
    assert lines.metric("oldest_message_age_seconds", queue="q", scope="all")[60] == 10
    assert reported(lines, 71) == {"sent": 1, "dead_lettered": 1, "received": 1, "deleted": 1}


@pytest.mark.parametrize("new_id", [{}, {"new_message_id": "m"}], ids=["nobody tells the new id", "the id is kept"])
def test_a_redrive_without_a_new_id(tmp_path: Path, new_id: Event) -> None:
    """A message with an unknown new id is not invented; one with an unchanged id is the same in the other queue."""
    events = [
        ev("dead_lettered", 0, message_id="m", to_queue="d"),
        ev("redriven", 20, "d", message_id="m", to_queue="q", **new_id),
    ]
    lines = replayed(events, tmp_path, until_s=30)
    assert reported(lines, 30, "d") == {"redriven": 1}
    assert reported(lines, 30) == {"dead_lettered": 1, **({"visible": 1} if new_id else {})}


def test_scopes_and_systems_keep_queues_of_one_name_apart(tmp_path: Path) -> None:
    """Even with one message id, and names that read alike when joined."""
    about: Event = {"message_id": "m"}
    events = [
        ev("sent", 0, scope="a", **about),
        ev("sent", 0, scope="b", **about),
        {**ev("sent", 0, **about), "system": "activemq"},
        ev("deleted", 10, scope="b", **about),
        ev("sent", 0, "c\0d", scope="e", **about),
        ev("sent", 0, "d", scope="e\0c", **about),
        ev("deleted", 10, "d", scope="e\0c", **about),
    ]
    lines = replayed(events, tmp_path, until_s=20)
    assert reported(lines, 20, scope_id="a") == {"visible": 1, "sent": 1}
    assert reported(lines, 20, scope_id="b") == {"sent": 1, "deleted": 1}
    assert reported(lines, 20, scope_id="", system="activemq") == {"visible": 1, "sent": 1}
    assert reported(lines, 20, "c\0d") == {"visible": 1, "sent": 1}
    assert reported(lines, 20, "d") == {"sent": 1, "deleted": 1}


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("sequences", "head"),
    [
        (["10", "9", "8"], 2),
        (["0010", "009", "11"], 1),
        (["18446744073709551617", "18446744073709551616", "9" * 20], 1),
        (["1" + "0" * 19, "9" * 18, "1" + "0" * 18], 1),
        (["b", "c", "a"], 2),
    ],
    ids=["as numbers", "leading zeros", "beyond 64 bits", "longer is larger", "not numbers at all"],
)
def test_positions_in_a_group(tmp_path: Path, sequences: list[str], head: int) -> None:
    """Decimal digits compare as numbers, whatever their length; the first is the head."""
    events = [ev("sent", i, "q.fifo", message_id=f"m{i}", group="g", sequence=sequence) for i, sequence in enumerate(sequences)]
    events.append(ev("received", 5, "q.fifo", message_id=f"m{head}", group="g", receive_count=1))
    (stuck,) = replayed(events, tmp_path, until_s=120).signals("GroupStuck", "firing")
    assert stuck["evidence"]["head_message_id"] == f"m{head}"


@pytest.mark.parametrize(("queue", "ordered"), [("q", True), ("q.fifo", None)])
def test_a_queue_is_ordered_by_its_word_or_its_name(tmp_path: Path, queue: str, ordered: bool | None) -> None:
    """A single event that marks the queue as ordered suffices, wherever it is in the recording."""
    about: Event = {"group": "g"}
    events = [ev("sent", i, queue, message_id=f"m{i}", sequence=str(i), **about) for i in range(3)]
    events += [ev("received", 5, queue, message_id="m0", **about, **({"ordered": True} if ordered else {}))]
    assert len(replayed(events, tmp_path, until_s=120).signals("GroupStuck", "firing")) == 1


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("said", "stuck"),
    [([False] * 4, 0), ([False, None, None, None], 0), ([None, None, None, False], 0), ([False, False, False, True], 1)],
    ids=["all say so", "the first says so", "the last says so", "another says it keeps order"],
)
def test_a_queue_named_fifo_keeps_no_order_where_its_events_say_so(tmp_path: Path, said: list[bool | None], stuck: int) -> None:
    """The end of the name is only a default."""
    events = [ev("sent", i, "q.fifo", message_id=f"m{i}", sequence=str(i), group="g") for i in range(3)]
    events += [ev("received", 5, "q.fifo", message_id="m0", group="g")]
    events = [event | ({} if word is None else {"ordered": word}) for event, word in zip(events, said, strict=True)]
    assert len(replayed(events, tmp_path, until_s=120).signals("GroupStuck", "firing")) == stuck


NAMES = [
    '"quoted"\\',
    "<script>alert(1)</script>",
    "line\nbreak\r\t",
    "\u202edesrever\u200b",
    "naïve ☃ 🦉",
    "a" * 512,
    "{}%s$(x)",
    "other",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_from_outside_come_out_as_they_went_in(tmp_path: Path, name: str) -> None:
    """In labels, signals and evidence, as queue, scope, group, consumer and message id."""
    about: Event = {"queue": name, "scope": name, "message_id": name, "group": name, "consumer": name}
    events = [{**ev("received", 20 * n, receive_count=n + 1), **about} for n in range(3)]
    lines = replayed(events, tmp_path, until_s=60)
    (fired,) = lines.signals("PoisonMessage", "firing")
    assert (fired["queue"], fired["message_id"], fired["evidence"]["group"], fired["evidence"]["consumer"]) == (name,) * 4
    assert name in fired["evidence"]["summary"]
    assert lines.metric("poison_messages", queue=name, scope_id=name)[60] == 1
    assert lines.metric("group_oldest_message_age_seconds", group=name)[60] == 60


def test_fields_that_are_null_or_unknown_are_as_if_absent(tmp_path: Path) -> None:
    """One sender writes every field, another writes fields of a later version."""
    plain = ev("received", 0, message_id="m")
    nulls = dict.fromkeys(("receive_count", "group", "consumer", "sequence", "sent_at", "scope", "attributes", "batch_id"))
    odd = {"flavour": "sour", "nested": {"type": "deleted", "at": 1}}
    expected = replayed([plain], tmp_path, until_s=60).lines
    assert replayed([{**plain, **nulls}], tmp_path, until_s=60).lines == expected
    assert replayed([{**plain, **odd}], tmp_path, until_s=60).lines == expected


@pytest.mark.simulation
def test_a_message_seen_late_has_a_past(tmp_path: Path) -> None:
    """Its age counts from the earliest known time: the send, or else the first receive, or else the first event."""
    about: Event = {"message_id": "m", "receive_count": 3}
    times_and_age: list[tuple[Event, float]] = [
        ({"sent_at": ms(-100), "first_received_at": ms(-50)}, 160),
        ({"first_received_at": ms(-50)}, 110),
        ({}, 60),
    ]
    for times, age in times_and_age:
        lines = replayed([ev("received", 0, **about, **times)], tmp_path, until_s=60)
        assert lines.metric("oldest_message_age_seconds", scope="all")[60] == age


def test_a_purge_empties_the_queue_but_for_what_came_after(tmp_path: Path) -> None:
    """Reported in order, late, or twice."""
    events = [
        ev("sent", 0, message_id="seen"),
        ev("received", 5, message_id="seen", receive_count=1),
        ev("sent", 8, message_id="waits"),
        ev("purged", 10),
        ev("sent", 12, message_id="new"),
        ev("received", 20, message_id="back", sent_at=ms(1)),
    ]
    reported_late = [e for e in events if e["type"] != "purged"] + [events[3], events[3]]
    for variant in (events, reported_late):
        lines = replayed(variant, tmp_path, until_s=30)
        assert reported(lines, 30)["visible"] + reported(lines, 30)["in_flight"] == 2
        assert lines.metric("oldest_message_age_seconds", scope="all")[30] == 29


@pytest.mark.parametrize(
    ("attributes", "depth"),
    [
        ({"visible": 3, "in_flight": 2, "delayed": 1}, {"visible": 3, "in_flight": 2, "delayed": 1}),
        ({"visible": 3}, {"visible": 3}),
        ({"in_flight": 2}, {"in_flight": 2}),
        ({"retention_s": 60}, {}),
        ({"visible": "3", "in_flight": None, "delayed": [1]}, {"visible": 3}),
        ({"visible": "three", "in_flight": -1, "delayed": 1.5}, {}),
        ({}, {}),
    ],
)
def test_a_queue_seen_through_its_attributes_alone(tmp_path: Path, attributes: Event, depth: dict[str, float]) -> None:
    """It has the reported depth, no ages, and no series for unreported values."""
    lines = replayed([ev("queue_state", 0, attributes=attributes)], tmp_path, until_s=60)
    for state in STATES:
        assert lines.metric("queue_messages", queue="q", state=state).get(60) == depth.get(state)
    assert not lines.metric("oldest_message_age_seconds", queue="q")
    assert not lines.metric("message_age_seconds_count", queue="q")
    assert lines.metric("queue_status", queue="q", status="ok" if depth else "unknown")[60] == 1


VALUES: list[Any] = [None, True, 0, -1, 1.5, 1e300, -1e300, 10**30, 2**63, "", "12", "x" * 600, [], [[1]], {}, {"a": None}]
NAMED = [
    *sorted(COUNT_ATTRIBUTES | FLAG_ATTRIBUTES | TEXT_ATTRIBUTES),
    "visibility_timeout_s",
    "retention_s",
    "max_retry_delay_s",
    "oldest_sent_at",
    "removed_at",
]
FREE = ["redrive_task", "tags", "findings", "redrive_allow_policy", "returned_since", "last_ack_at", "failed"]


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(4))
def test_attributes_may_hold_anything(tmp_path: Path, seed: int) -> None:
    """An attribute of an invalid type or range is ignored, and processing continues."""
    rng = random.Random(seed)
    events: list[Event] = []
    for at in range(0, 120, 2):
        kind = rng.choice(["queue_state", "consumer_state", "batch"])
        reported_now = {name: rng.choice(VALUES) for name in rng.sample(NAMED + FREE, 12)}
        about = {"consumer": rng.choice(["c", "a:1:1", "a:1:2"]), "batch_id": "b", "queue": rng.choice(["q", "d", "q.fifo"])}
        events.append({**ev(kind, at, attributes=reported_now), **about, "system": rng.choice(["aws_sqs", "activemq"])})
        life = ev(rng.choice(["sent", "received", "extended", "deleted"]), at, message_id=f"m{at % 7}", group="g")
        events.append({**life, **about, "system": rng.choice(["aws_sqs", "activemq"])})
    lines = replayed(events, tmp_path, every="30s", until_s=200)
    assert lines.errors == ""
    assert lines.metric("events_total", result="invalid")[180] == 0


@pytest.mark.simulation
@pytest.mark.parametrize("to_move", ["all", [1], {}, 1.5, True])
def test_a_number_of_messages_to_move_that_is_none_is_ignored(tmp_path: Path, to_move: object) -> None:
    """The task itself is known all the same: it makes no progress."""
    task = {"status": "RUNNING", "moved": 1, "to_move": to_move}
    events = [ev("queue_state", 60 * n, queue="d", attributes={"redrive_task": task}) for n in range(12)]
    lines = replayed(events, tmp_path, apart_s=10)
    assert [line["queue"] for line in lines.signals("RedriveStalled", "firing")] == ["d"]


@pytest.mark.simulation
@pytest.mark.parametrize("extreme", [10**400, -(10**400), 1e300, -1, 0])
def test_numbers_of_a_redrive_task_out_of_range_are_ignored(tmp_path: Path, extreme: float) -> None:
    """They ended the job, or made the task stand still for longer than there is time."""
    task = {"status": "RUNNING", "moved": 1, "to_move": 9, "progressed_at": extreme, "started_at": extreme}
    events = [ev("queue_state", 60 * n, queue="d", attributes={"redrive_task": task}) for n in range(12)]
    lines = replayed(events, tmp_path, apart_s=5)
    (stalled,) = lines.signals("RedriveStalled", "firing")
    assert (stalled["at"], stalled["evidence"]["stalled_s"]) == (ms(600), 600)
    assert "started_at" not in stalled["evidence"]


def test_unknown_attributes_replace_no_known_one(tmp_path: Path) -> None:
    """Not those of the same report, and not those of an earlier one, however many there are."""
    unknown = {f"x{n}": n for n in range(300)}
    settings = {"visibility_timeout_s": 600, "max_receive_count": 2, "dead_letter_queue": "d"}
    states = [ev("queue_state", 0, attributes={**settings, **unknown}), ev("queue_state", 1, attributes={"y": 1, **unknown})]
    receives = [ev("received", 10 * n, message_id="m", receive_count=n) for n in (1, 2)]
    lines = replayed([*states, *receives], tmp_path, until_s=120)
    assert lines.times("PoisonMessage", "firing") == [20]
    assert lines.metric("queue_messages", queue="q", state="in_flight")[120] == 1


@pytest.mark.parametrize("retention_s", [0, 0.0, "0", -1])
def test_a_retention_of_nothing_is_none(tmp_path: Path, retention_s: object) -> None:
    """Every message would be lost as it is sent."""
    events = [ev("queue_state", 0, attributes={"retention_s": retention_s}), ev("sent", 1, message_id="m")]
    lines = replayed(events, tmp_path, until_s=60)
    assert not lines.signals("MessageDropped")
    assert lines.metric("queue_messages", queue="q", state="visible")[60] == 1


def test_a_bad_attribute_spoils_no_other(tmp_path: Path) -> None:
    """It does not replace an earlier value either; null withdraws that."""
    limits = [{"max_receive_count": 2, "dead_letter_queue": "d"}, {"max_receive_count": "many", "visibility_timeout_s": 5}]
    receives = [ev("received", 10 * n, message_id="m", receive_count=n) for n in (1, 2)]
    states = [ev("queue_state", n, attributes=attributes) for n, attributes in enumerate(limits)]
    lines = replayed([*states, *receives], tmp_path, every="1s", until_s=30)
    assert lines.times("PoisonMessage", "firing") == [20]
    assert lines.metric("queue_messages", state="visible")[25] == 1
    taken_back = ev("queue_state", 2, attributes={"max_receive_count": None})
    assert not replayed([*states, taken_back, *receives], tmp_path, until_s=30).signals("PoisonMessage")


@pytest.mark.simulation
def test_a_sender_cannot_fill_the_memory_with_names_of_its_own() -> None:
    """Attributes are capped; consumers and collectors without a report for a day are forgotten."""
    day, hour = 86_400_000, 3_600_000
    steps = []
    for n in range(0, 40 * hour, hour):
        made_up = {f"{n}-{i}": i for i in range(50)}
        reported_now = [event("queue_state", n, attributes=made_up), event("heartbeat", n, consumer=f"pid-{n}")]
        steps.append((n, [*reported_now, event("consumer_state", n, consumer=f"connection-{n}", attributes={"prefetch": 1})]))
    last = run_steps(steps, Settings(now_is_event_time=True), restart=True)[-1]
    (summary,) = last.queues.values()
    assert len(summary.attributes) == 200
    assert len(last.collectors) == len(summary.consumer_states) == day // hour + 1


CONSUMER_REPORTS: list[Event] = [
    event("consumer_state", 1_000, consumer="c", attributes={"prefetch": 100, "dispatched": 3, "connected": False}),
    event("consumer_state", 2_000, consumer="c", attributes={"dispatched": 4, **{f"x{n}": n for n in range(300)}}),
    event("consumer_state", 3_000, consumer="c", attributes={"connected": True}),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("steps", [1, 3])
def test_reports_on_a_consumer_give_the_same_in_any_order(order: tuple[int, ...], steps: int) -> None:
    """One that comes late adds what later ones leave out, and names of the sender's own replace nothing."""
    arrive = [CONSUMER_REPORTS[i] for i in order]
    taken = [(3_000, arrive)] if steps == 1 else [(3_000 + i, [one]) for i, one in enumerate(arrive)]
    (summary,) = run_steps(taken, Settings(now_is_event_time=True))[-1].queues.values()
    found = summary.consumer_states["c"]
    assert (found.at, found.dispatched_at, len(found.attributes)) == (T0 + 3_000, T0 + 2_000, 200)
    assert {"prefetch": 100, "dispatched": 4, "connected": True}.items() <= found.attributes.items()


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 2])
def test_of_the_consumers_that_left_the_latest_are_known(shards: int) -> None:
    """A client that subscribes anew for each message leaves one each time; those that are connected are all known."""
    steps: list[tuple[int, list[Event]]] = []
    for n in range(8):
        at, attributes = 10_000 * n, {"prefetch": 1, "connected": n % 4 == 0}
        steps.append((at, [event("consumer_state", at, consumer=f"{n}-{i}", attributes=attributes) for i in range(400)]))
    last = run_steps([*steps, (80_000, [])], Settings(now_is_event_time=True), shards=shards, restart=True)[-1]
    (summary,) = last.queues.values()
    found = Counter(name.partition("-")[0] for name in summary.consumer_states)
    assert found == {"0": 400, "4": 400, "5": 200, "6": 400, "7": 400}


def test_a_heartbeat_or_a_consumer_without_a_queue_makes_no_queue(tmp_path: Path) -> None:
    """They count as alive."""
    beat = {"v": 1, "type": "heartbeat", "at": ms(0), "consumer": "sqs-1"}
    state = {"v": 1, "type": "consumer_state", "at": ms(5), "system": "activemq", "consumer": "c", "attributes": {"prefetch": 1}}
    lines = replayed([beat, state, ev("sent", 10, message_id="m")], tmp_path, until_s=60)
    assert {x["labels"]["queue"] for x in lines.lines if "queue" in x.get("labels", {})} == {"q"}
    assert lines.metric("telemetry_last_event_timestamp_seconds", collector="sqs-1")[60] == ms(0) / 1000
    assert lines.metric("events_total", result="accepted")[60] == 3


def lives(n: int) -> list[Event]:
    """Messages with every possible kind of event, over twenty minutes."""
    events: list[Event] = [
        ev("queue_state", 0, attributes={"visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "d"})
    ]
    for i in range(n):
        about: Event = {"message_id": f"m{i}", "group": f"g{i % 3}", "sequence": str(10**19 + i)}
        at = 15.0 * i
        events.append(ev("sent", at, **about))
        for count in range(1, 1 + i % 5):
            at += 31
            events.append(ev("received", at, receive_count=count, consumer=f"c{i % 2}", **about))
            if i % 4 == 1:
                events.append(ev("extended", at + 5, invisible_until=ms(at + 30), **about))
        if i % 4 == 3:
            events.append(ev("released", at + 2, **about))
        if i % 5 == 4:
            events.append(ev("dead_lettered", at + 31, to_queue="d", **about))
        elif i % 3:
            events.append(ev("deleted", at + 9, **about))
    return sorted(events, key=lambda e: int(e["at"]))


@pytest.mark.parametrize("other", [ev("queue_state", 0, attributes={"visible": 1}), ev("heartbeat", 0, consumer="c")])
def test_a_queue_is_ordered_where_only_one_of_several_reports_says_so(tmp_path: Path, other: Event) -> None:
    """Reports about queues of one step may have the flag or not."""
    lines = replayed([ev("queue_state", 0, ordered=True, attributes={"visible": 1}), other], tmp_path)
    assert lines.metric("events_total", result="accepted")[0] == 2


def test_a_receive_count_may_be_any_number(tmp_path: Path) -> None:
    """What was not seen of it is counted without a row for each."""
    highest = 2**31 - 1
    events = [ev("sent", 0, message_id="m"), ev("received", 1, message_id="m", receive_count=highest)]
    lines = replayed(events, tmp_path, until_s=2)
    assert reported(lines, 2) == {"in_flight": 1, "sent": 1, "received": 1}
    (fired,) = lines.signals("PoisonMessage", "firing")
    assert fired["evidence"]["receive_count"] == highest


@pytest.mark.simulation
def test_a_message_delivered_after_its_retention_is_still_there(tmp_path: Path) -> None:
    """The retention was assumed to be SQS's default of four days, and is longer."""
    days = 86_400.0
    about: dict[str, Any] = {"message_id": "m", "sent_at": ms(0)}
    events = [ev("received", 5 * days + 100 * n, receive_count=6 + n, **about) for n in range(3)]
    lines = replayed(events, tmp_path)
    assert lines.metric("messages_expired_total", queue="q")[5 * days + 200] == 0
    assert reported(lines, 5 * days + 200) == {"in_flight": 1, "received": 3}
    assert lines.times("PoisonMessage", "firing") == [5 * days]


@pytest.mark.simulation
def test_shuffled_within_the_lateness_and_repeated_it_is_the_same(tmp_path: Path) -> None:
    """Every line but the count of duplicates; totals are exact."""
    events = lives(50)
    rng = random.Random(7)
    jumbled = sorted(events + rng.sample(events, 60), key=lambda e: e["at"] + rng.randint(0, 590_000))
    first = next(e for e in jumbled if e["at"] == events[0]["at"])
    in_order = replayed(events, tmp_path, until_s=1_500, apart_s=5)
    out_of_order = replayed([first, *jumbled], tmp_path, until_s=1_500, apart_s=5)

    def plain(lines: Lines) -> list[Event]:
        return [x for x in lines.lines if x.get("name") != "queuewatch_events_total"]

    assert plain(out_of_order) == plain(in_order)
    assert len(in_order.signals()) > 10
    assert max(out_of_order.metric("events_total", result="duplicate").values()) == 61
    assert max(out_of_order.metric("events_total", result="late").values()) == 0


@pytest.mark.simulation
def test_a_late_event_raises_no_dead(tmp_path: Path) -> None:
    """Beyond the lateness the end is forgotten, as is anything that would contradict it; the event is counted as late."""
    events = [
        ev("sent", 0, message_id="m"),
        ev("received", 5, message_id="m", receive_count=1),
        ev("deleted", 10, message_id="m"),
        ev("sent", 1_500, message_id="now"),
        ev("received", 5, message_id="m", receive_count=1),
        ev("received", 6, message_id="m", receive_count=2),
        ev("sent", 0, message_id="m"),
        ev("sent", 0, message_id="never heard of"),
    ]
    lines = replayed(events, tmp_path, until_s=1_600, apart_s=10)
    assert reported(lines, 1_600) == {"visible": 1, "sent": 2, "received": 1, "deleted": 1}
    assert lines.metric("events_total", result="late")[1_600] == 4
    assert lines.metric("events_total", result="accepted")[1_600] == 4


@pytest.mark.simulation
@pytest.mark.parametrize(("late_by_ms", "late"), [(0, 0), (1, 1)], ids=["at the limit", "beyond it"])
@pytest.mark.parametrize("newest_at_s", [601, 1_200], ids=["soon after the step before", "many steps"])
def test_the_lateness_is_exact_in_a_replay(newest_at_s: float, late_by_ms: int, late: int, tmp_path: Path) -> None:
    """It is late by the newest event on a line before it, not by the step before, and so are both ends of a move."""
    at_s = newest_at_s - 600 - late_by_ms / 1_000
    events = [ev("sent", 0, message_id="first"), ev("sent", newest_at_s, message_id="newest")]
    events += [ev("sent", at_s, message_id="maybe late"), ev("dead_lettered", at_s, message_id="moved", to_queue="d")]
    events += [ev("queue_state", at_s, attributes={"visible": 3, "in_flight": 0})]
    lines = replayed(events, tmp_path, until_s=newest_at_s, apart_s=10)
    results = {name: lines.metric("events_total", result=name)[newest_at_s] for name in ("accepted", "late")}
    assert results == {"accepted": 5 - 3 * late, "late": 3 * late}
    assert reported(lines, newest_at_s)["sent"] == 3 - late
    assert bool(lines.signals("DeadLetterArrived", "firing", queue="d")) == (not late)


def test_a_receive_from_before_the_end_reopens_nothing_but_one_after_does(tmp_path: Path) -> None:
    """An end is final unless a later delivery proves otherwise."""
    ended = [ev("sent", 0, message_id="m"), ev("received", 10, message_id="m"), ev("deleted", 20, message_id="m")]
    early = replayed([*ended, ev("received", 15, message_id="m")], tmp_path, until_s=30)
    assert reported(early, 30) == {"sent": 1, "received": 2, "deleted": 1}
    later = replayed([*ended, ev("received", 25, message_id="m")], tmp_path, until_s=30)
    assert reported(later, 30) == {"in_flight": 1, "sent": 1, "received": 2, "deleted": 1}
    again = replayed([*ended, ev("received", 25, message_id="m"), ev("deleted", 28, message_id="m")], tmp_path, until_s=30)
    assert reported(again, 30) == {"sent": 1, "received": 2, "deleted": 2}


@pytest.mark.simulation
def test_what_is_past_its_retention_is_gone(tmp_path: Path) -> None:
    """It ends by time, and is counted as expired."""
    events = [ev("queue_state", 0, attributes={"retention_s": 300}), ev("sent", 10, message_id="m")]
    lines = replayed(events, tmp_path, until_s=420)
    assert lines.metric("queue_messages", state="visible") == {60: 1, 120: 1, 180: 1, 240: 1, 300: 1, 360: 0, 420: 0}
    assert lines.times("MessageDropped", "firing", message_id="m") == [310]
    assert reported(lines, 420) == {"sent": 1, "expired": 1}


@pytest.mark.simulation
def test_what_the_broker_no_longer_counts_is_reconciled_away(tmp_path: Path) -> None:
    """After five minutes of an empty queue; younger messages stay, and it is counted."""
    empty = [ev("queue_state", 60 * n, attributes={"visible": 0, "in_flight": 0, "delayed": 0}) for n in range(1, 12)]
    events = [ev("sent", 0, message_id="lost"), ev("sent", 450, message_id="young"), *empty]
    lines = replayed(sorted(events, key=lambda e: int(e["at"])), tmp_path)
    reconciled = lines.metric("messages_reconciled_total", queue="q")
    assert (reconciled[300], reconciled[360], reconciled[660]) == (0, 1, 1)
    assert lines.metric("tracked_messages", queue="q", state="visible")[660] == 1
    assert lines.metric("queue_messages", queue="q", state="visible")[660] == 0
    assert not lines.signals("MessageDropped")
