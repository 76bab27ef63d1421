"""DeadLetterArrived fires once for every arrival, whatever is learned later, and all end five minutes after the last."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import QueueRule, Settings
from tests.core.driving import T0, event
from tests.judge.driving import Judged, Step, in_steps, judged

DEAD: dict[str, Any] = {"message_id": "m", "to_queue": "dead"}
BACK: dict[str, Any] = {"message_id": "m", "to_queue": "orders", "new_message_id": "m"}


def arrivals(*steps: Step, restart: bool = False) -> list[tuple[int, str, str | None]]:
    """Return milliseconds, status and part of each change."""
    changes = judged(steps, restart=restart).changes
    return [
        (c.at_ms - event("x", 0)["at"], c.status, c.finding.key.part)
        for c in changes
        if c.finding.key.signal == "DeadLetterArrived"
    ]


def test_an_arrival_that_ended_is_not_announced_again_by_a_later_one() -> None:
    """A second move is reported late, dated between the first and its end: the first stays resolved."""
    late = {**DEAD, "message_id": "late"}
    steps: list[Step] = [
        (0, [event("dead_lettered", 0, **DEAD)]),
        (300_000, []),
        (420_000, [event("dead_lettered", 200_000, **late)]),
        (500_000, []),
    ]
    found = [
        (c.at_ms - event("x", 0)["at"], c.status, c.finding.key.message_id)
        for c in judged(steps).changes
        if c.finding.key.signal == "DeadLetterArrived"
    ]
    assert found == [
        (0, "firing", "m"),
        (300_000, "resolved", "m"),
        (420_000, "firing", "late"),
        (500_000, "resolved", "late"),
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_a_message_that_comes_again_under_its_own_id_is_announced_again(restart: bool) -> None:
    """Redriven with its id kept and dead-lettered again within five minutes: three arrivals, one end."""
    steps: list[Step] = [
        (0, [event("dead_lettered", 0, **DEAD)]),
        (20_000, [event("redriven", 10_000, "dead", **BACK)]),
        (110_000, [event("dead_lettered", 100_000, **DEAD)]),
        (120_000, [event("redriven", 115_000, "dead", **BACK), event("dead_lettered", 118_000, **DEAD)]),
        (417_000, []),
        (418_000, []),
    ]
    assert arrivals(*steps, restart=restart) == [
        (0, "firing", None),
        (110_000, "firing", "2"),
        (120_000, "firing", "3"),
        (418_000, "resolved", None),
        (418_000, "resolved", "2"),
        (418_000, "resolved", "3"),
    ]


@pytest.mark.parametrize("reported_at_ms", [90_000, 104_000], ids=["it came earlier", "by a clock that is ahead"])
def test_a_better_known_time_of_the_same_arrival_is_no_second_one(reported_at_ms: int) -> None:
    """Seen at its first receive, then reported."""
    seen = event("received", 100_000, "dead", message_id="m", receive_count=5, from_queue="orders")
    steps: list[Step] = [(100_000, [seen]), (105_000, [event("dead_lettered", reported_at_ms, **DEAD)]), (110_000, [])]
    assert arrivals(*steps) == [(100_000, "firing", None)]


SEEN: dict[str, Any] = {"message_id": "m", "receive_count": 5, "from_queue": "orders"}


@pytest.mark.parametrize("second", ["event", "first_receive"])
@pytest.mark.parametrize("first", ["event", "first_receive"])
def test_a_second_arrival_is_announced_however_the_two_are_known(first: str, second: str) -> None:
    """It came again under its own id while the signal about its first arrival still fires."""
    moves = {
        "event": lambda at: event("dead_lettered", at, **DEAD),
        "first_receive": lambda at: event("received", at, "dead", **SEEN),
    }
    steps: list[Step] = [
        (0, [moves[first](0)]),
        (20_000, [event("redriven", 10_000, "dead", **BACK)]),
        (100_000, [moves[second](100_000)]),
        (110_000, []),
    ]
    assert arrivals(*steps) == [(0, "firing", None), (100_000, "firing", "2")]


def test_a_burst_is_listed_up_to_the_cap_and_ends_as_one() -> None:
    """Arrivals beyond the cap are counted; nothing flaps meanwhile."""
    settings = Settings(now_is_event_time=True, messages_per_queue=5)
    burst = [event("dead_lettered", n, message_id=f"m{n}", to_queue="dead") for n in range(12)]
    steps: list[Step] = [(1_000, burst), *((1_000 + 60_000 * n, []) for n in range(1, 7))]
    said = judged(steps, settings)
    reported = [(c.at_ms - event("x", 0)["at"], c.status) for c in said.changes if c.finding.key.signal == "DeadLetterArrived"]
    assert reported == [(1_000, "firing")] * 5 + [(301_000, "resolved")] * 5
    assert said.snapshots[0].queues[0].tracked == 12


DAY_MS = 86_400_000


def dead_letter(receives: int, queue: str, until_ms: int) -> Judged:
    """A message is received, dead-lettered after ten minutes, and nobody receives it from the dead-letter queue."""
    kind = "fifo" if queue.endswith(".fifo") else "standard"
    dead = f"dead{queue.removeprefix('orders')}"
    received = [event("received", 100_000 + n * 30_000, queue, message_id="m", receive_count=n + 1) for n in range(receives)]
    began = [
        event("queue_state", 0, queue, attributes={"kind": kind, "dead_letter_queue": dead}),
        event("queue_state", 0, dead, attributes={"kind": kind, "retention_s": 4 * DAY_MS // 1000}),
        event("sent", 0, queue, message_id="m"),
    ]
    moved = event("dead_lettered", 600_000, queue, message_id="m", to_queue=dead)
    steps: list[Step] = [(0, began), (601_000, [*received, moved])]
    return judged([*steps, *((t, []) for t in (*range(DAY_MS // 2, until_ms, DAY_MS // 2), until_ms) if t > 601_000)])


@pytest.mark.parametrize(
    ("receives", "queue", "evidence"),
    [(6, "orders", 6), (0, "orders", None), (6, "orders.fifo", None)],
    ids=["known from its source", "not reported", "its source is in another shard"],
)
def test_an_arrival_names_the_receives_only_where_they_are_known(receives: int, queue: str, evidence: int | None) -> None:
    """A dead letter was delivered before it was moved: no receive seen in its dead-letter queue does not mean 0 receives."""
    (arrived,) = dead_letter(receives, queue, 601_000).firing("DeadLetterArrived")
    assert arrived.evidence.get("receive_count") == evidence


def test_a_dead_letter_that_expires_is_not_said_to_have_had_no_receives() -> None:
    """By then it is no longer known how often its source queue delivered it."""
    (lost,) = dead_letter(6, "orders", 4 * DAY_MS + 60_000).firing("MessageDropped")
    assert "receive_count" not in lost.evidence
    assert lost.evidence["summary"] == "Message m expired unprocessed (retention ran out), 4 d after it was sent."


def test_a_message_that_expires_in_its_own_queue_had_no_receives() -> None:
    """There it is known, and tells that nobody consumed the queue."""
    (lost,) = judged([(0, [event("sent", 0, message_id="m")]), (10_000, [event("expired", 9_000, message_id="m")])]).firing(
        "MessageDropped"
    )
    assert lost.evidence["receive_count"] == 0
    assert "after 0 receives" in lost.evidence["summary"]


HOUR_MS = 3_600_000


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("at_first", "later", "fires_h"),
    [(5, 5, 73), (5, 3, 75), (5, 1, 77), (5, 0, None), (7, 3, 77), (7, 2, None)],
    ids=[
        "all are there",
        "two are gone",
        "four are gone",
        "all are gone",
        "two may be of before the first report",
        "all may be of before the first report",
    ],
)
def test_dead_letters_that_are_left_expire_by_the_broker_s_count(at_first: int, later: int, fires_h: int | None) -> None:
    """Somebody deleted some in the console, nobody knows which: the page comes when one of the others is sure to expire.

    Five dead letters, sent an hour apart, expire 96 hours later; it fires when less than a day is left.
    """
    moves = [event("sent", n * HOUR_MS, message_id=f"m{n}") for n in range(5)]
    moves += [event("dead_lettered", 5 * HOUR_MS, message_id=f"m{n}", to_queue="dead") for n in range(5)]
    steps: list[Step] = []
    for hour in range(80):
        there = later if hour >= 24 else at_first if hour >= 5 else at_first - 5
        counts = {"visible": there, "in_flight": 0, "delayed": 0, "retention_s": 4 * DAY_MS // 1000}
        state = event("queue_state", hour * HOUR_MS, "dead", attributes=counts | {"dead_letter_sources": ["orders"]})
        steps.append((hour * HOUR_MS, [state, *(e for e in moves if e["at"] == state["at"])]))
    found = judged(steps).changes
    fired = [c for c in found if c.finding.key.signal == "DeadLetterExpiring" and c.status == "firing"]
    assert [(c.at_ms - event("x", 0)["at"]) // HOUR_MS for c in fired] == ([] if fires_h is None else [fires_h])
    if fired:
        gone = fired[0].finding.evidence.get("may_be_gone", 0)
        assert gone == (fires_h or 0) - 73
        assert " of dead-letter queue dead will be lost in " in fired[0].finding.evidence["summary"]
        assert ("message_id" in fired[0].finding.evidence) is (gone == 0)


@pytest.mark.parametrize("known_by", ["nobody", "its collector", "configuration"])
def test_a_retention_that_is_only_assumed_pages_nobody(known_by: str) -> None:
    """Only receives of the dead-letter queue are reported: four days is the default, and most keep them longer."""
    seen = {"message_id": "x", "receive_count": 4, "sent_at": event("x", -3 * DAY_MS - 60_000)["at"], "from_queue": "orders"}
    events = [event("received", 0, "dead", consumer="tool", **seen)]
    if known_by == "its collector":
        events.append(event("queue_state", 0, "dead", attributes={"retention_s": 4 * 86_400}))
    rules = (QueueRule("dead", retention_s=4 * 86_400),) if known_by == "configuration" else ()
    (fired,) = judged([(0, events)], Settings(now_is_event_time=True, rules=rules)).firing("DeadLetterExpiring")
    words, assumed = fired.evidence["summary"], known_by == "nobody"
    assert fired.severity == ("warning" if assumed else "critical")
    assert fired.evidence.get("retention_assumed", False) is assumed
    assert ("if its retention is the default of 4 d (not reported)" in words) is assumed
    assert fired.evidence["expires_at"] == seen["sent_at"] + 4 * DAY_MS


def test_more_dead_letters_may_be_gone_than_are_listed() -> None:
    """Most were redriven while new ones came: it pages when the last of all expires soon, which no other outlasts."""
    moves = [event("sent", n * 60_000, message_id=f"m{n}") for n in range(105)]
    moves += [event("dead_lettered", 5 * HOUR_MS, message_id=f"m{n}", to_queue="dead") for n in range(105)]
    steps: list[Step] = [(5 * HOUR_MS, moves)]
    for hour in (0, 5, 24, 48, 72, 73, 74):
        there = 0 if not hour else 105 if hour < 24 else 5
        counts = {"visible": there, "in_flight": 0, "delayed": 0, "retention_s": 4 * DAY_MS // 1000}
        at = hour * HOUR_MS + 60_000
        steps.append((at, [event("queue_state", at, "dead", attributes=counts | {"dead_letter_sources": ["orders"]})]))
    found = judged(sorted(steps, key=lambda step: step[0])).changes
    (fired,) = [c for c in found if c.finding.key.signal == "DeadLetterExpiring" and c.status == "firing"]
    assert (fired.at_ms - event("x", 0)["at"]) // HOUR_MS == 74
    assert fired.finding.evidence["may_be_gone"] == 100


def test_nobody_is_told_to_instrument_the_producers_of_a_dead_letter_queue() -> None:
    """The broker moves messages there, and reports no move. Of another queue the producers are missing."""
    queues = {}
    for queue, attributes in (("orders", {}), ("d", {"is_dead_letter_queue": True})):
        events = [event("queue_state", 0, queue, attributes=attributes)] if attributes else []
        for n in range(1, 40):
            about = {"message_id": f"m{n}", "consumer": "c"}
            received = event("received", 5_000 * n, queue, receive_count=1, sent_at=T0 + 5_000 * n - 1_000, **about)
            events += [received, event("deleted", 5_000 * n + 500, queue, **about)]
        [queues[queue]] = judged(in_steps(events, 10, 240)).snapshots[-1].queues
    assert {view.basis for view in queues.values()} == {"consumers"}
    assert (queues["orders"].next_step, queues["d"].next_step) == ("instrument its producers", "")


@pytest.mark.parametrize("names_source", [False, True])
def test_receives_that_show_moves_are_no_sends(names_source: bool) -> None:
    """Nobody reports what was moved and not received, so the age of the oldest dead letter is not exact."""
    events = [event("queue_state", 0, "d", attributes={"is_dead_letter_queue": True})]
    for n in range(30):
        about = {"message_id": f"m{n}", "consumer": "c"}
        origin = {"from_queue": "orders"} if names_source else {}
        events.append(event("received", 5_000 * n, "d", receive_count=1, sent_at=T0 + 5_000 * n - 1_000, **about, **origin))
        if n < 29:
            events.append(event("deleted", 5_000 * n + 500, "d", **about))
    events = [e | {"system": "cloudflare_queues"} for e in events]
    (view,) = [view for view in judged(in_steps(events, 10, 240)).snapshots[-1].queues if view.queue == "d"]
    assert (view.basis, view.basis_reason) == ("consumers", "moves to d are not seen")
