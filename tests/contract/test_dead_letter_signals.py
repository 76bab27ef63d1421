"""The signals about dead and lost messages: how an arrival is known, when it is gone, and when the signal ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.failing import STANDARD, failing
from tests.contract.replaying import ev, ms, replayed

DAY = 86_400


@pytest.mark.slow
def test_each_dead_letter_is_announced_and_all_end_five_minutes_after_the_last(tmp_path: Path) -> None:
    """0→1 is not enough: a second arrival fires again while the first still does."""
    events = [ev("queue_state", 0, attributes=STANDARD)]
    for at, name in ((10, "a"), (200, "b"), (1000, "c")):
        events += [ev("sent", at - 5, message_id=name), ev("dead_lettered", at, message_id=name, to_queue="q-dlq")]
    lines = replayed([*events, ev("heartbeat", 1320, consumer="x")], tmp_path)
    assert lines.times("DeadLetterArrived", "firing", queue="q-dlq") == [10, 200, 1000]
    assert lines.times("DeadLetterArrived", "resolved", queue="q-dlq") == [500, 500, 1300]
    assert {x["message_id"] for x in lines.signals("DeadLetterArrived")} == {"a", "b", "c"}
    assert lines.metric("messages_dead_lettered_total", queue="q")[1260] == 3


@pytest.mark.simulation
@pytest.mark.parametrize("known_at_s", [0, 150], ids=["before the move", "after it"])
@pytest.mark.parametrize(("source", "dead"), [("q", "d"), ("q.fifo", "d.fifo")])
def test_a_move_that_does_not_say_where_to_is_to_the_known_dead_letter_queue(
    tmp_path: Path, source: str, dead: str, known_at_s: int
) -> None:
    """The arrival, the depth, the ages and the expiry are those of a move that names it."""
    attributes = {"dead_letter_queue": dead, "max_receive_count": 3, "visibility_timeout_s": 30}
    events = [ev("queue_state", 0, dead, attributes={"retention_s": 3_600}), ev("sent", 5, source, message_id="m")]
    events += [ev("queue_state", known_at_s, source, attributes=attributes)]
    unnamed = ev("dead_lettered", 100, source, message_id="m")
    lines = replayed([*events, unnamed], tmp_path, until_s=420)
    named = replayed([*events, unnamed | {"to_queue": dead}], tmp_path, until_s=420)
    assert lines.times("DeadLetterArrived", "firing", queue=dead) == [max(100, known_at_s)]
    assert lines.times("DeadLetterArrived", "resolved", queue=dead) == [400]
    assert lines.metric("queue_messages", queue=dead, state="visible")[420] == 1
    for name in ("oldest_message_age_seconds", "dead_letter_expiry_seconds", "messages_dead_lettered_total"):
        assert lines.metric(name, queue=dead).get(420) == named.metric(name, queue=dead).get(420)
    if not known_at_s:
        assert lines.lines == named.lines


def counted_moves(moves: dict[int, str], until: int, *, known: bool) -> list[dict[str, Any]]:
    """Return moves at these seconds, each counted by the next of the collector's polls, in order of time.

    `known`: whether the source's attributes name the dead-letter queue.
    """
    events = [ev("queue_state", 0, attributes=STANDARD | ({"dead_letter_queue": "q-dlq"} if known else {}))]
    for at, name in moves.items():
        events += [ev("sent", at - 5, message_id=name), ev("dead_lettered", at, message_id=name, to_queue="q-dlq")]
    for at in range(0, until, 30):
        counts = {"in_flight": 0, "delayed": 0}
        events += [
            ev("queue_state", at, attributes=counts | {"visible": 0}),
            ev("queue_state", at, "q-dlq", attributes=counts | {"visible": sum(moved <= at for moved in moves)}),
        ]
    return sorted(events, key=lambda e: int(e["at"]))


@pytest.mark.simulation
@pytest.mark.parametrize("known", [True, False], ids=["known", "known by its first arrival"])
def test_a_reported_move_is_not_announced_again_when_it_is_counted(tmp_path: Path, known: bool) -> None:
    """The count that shows it comes with a later poll; the next move is announced by its id."""
    moves = {70: "a", 400: "b", 730: "c"}
    lines = replayed(counted_moves(moves, 1_200, known=known), tmp_path, every="30s", until_s=1_200, apart_s=5)
    fired = lines.signals("DeadLetterArrived", "firing", queue="q-dlq")
    assert [(x.get("message_id"), x["evidence"]["known_by"]) for x in fired] == [(name, "event") for name in "abc"]
    assert lines.times("DeadLetterArrived", "firing", queue="q-dlq") == list(moves)


@pytest.mark.simulation
def test_a_dead_letter_has_its_ages_as_soon_as_a_count_shows_it(tmp_path: Path) -> None:
    """That nobody receives from a dead-letter queue does not mean that its consumers are not instrumented."""
    lines = replayed(counted_moves({70: "a"}, 600, known=True), tmp_path, every="30s", until_s=600, apart_s=10)
    for scope, since in (("all", 65), ("visible", 65), ("cloudwatch", 70)):
        ages = lines.metric("oldest_message_age_seconds", queue="q-dlq", scope=scope)
        assert {at: ages.get(at) for at in (120, 300, 600)} == {at: at - since for at in (120, 300, 600)}, scope
    assert lines.metric("telemetry_basis", queue="q-dlq", basis="messages")[120] == 1


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("arrival", "known_by"),
    [
        ([ev("dead_lettered", 100, message_id="bad", to_queue="q-dlq")], "event"),
        ([ev("received", 100, "q-dlq", message_id="bad", receive_count=5, from_queue="q")], "first_receive"),
        ([ev("received", 100, "q-dlq", message_id="bad", receive_count=5)], "first_receive"),
    ],
    ids=["reported", "source named at the first receive", "turns up in a known dead-letter queue"],
)
def test_an_arrival_says_how_it_is_known_and_counts_once(tmp_path: Path, arrival: list[dict[str, Any]], known_by: str) -> None:
    """However the arrival is known, the source loses the message once; a later report of the same adds nothing."""
    later = [ev("received", 130, "q-dlq", message_id="bad", receive_count=5, from_queue="q")]
    lines = replayed([*failing(2), *arrival, *later, ev("heartbeat", 180, consumer="x")], tmp_path)
    (fired,) = lines.signals("DeadLetterArrived", "firing")
    assert fired["evidence"]["known_by"] == known_by
    assert fired["evidence"]["from_queue"] == "q"
    assert lines.metric("messages_dead_lettered_total", queue="q")[180] == 1
    assert lines.metric("queue_messages", queue="q", state="visible")[180] == 0


@pytest.mark.simulation
def test_a_move_nobody_saw_is_concluded_from_the_depth(tmp_path: Path) -> None:
    """Its receives are used up, its window is over, others were received since, and the broker counts fewer."""
    events = failing(4, max_receive_count=4)
    events += [ev("queue_state", 130, attributes={"visible": 0, "in_flight": 1, "delayed": 0})]
    for n in range(6):
        events += [
            ev("sent", 150 + 30 * n, message_id=f"g{n}"),
            ev("received", 151 + 30 * n, message_id=f"g{n}", receive_count=1),
        ]
        events += [ev("deleted", 152 + 30 * n, message_id=f"g{n}")]
    events += [
        ev("queue_state", 230, attributes={"visible": 0, "in_flight": 0, "delayed": 0}),
        ev("heartbeat", 400, consumer="x"),
    ]
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("DeadLetterArrived", "firing", queue="q-dlq")
    assert fired["evidence"]["known_by"] == "inferred"
    assert lines.metric("messages_dead_lettered_total", queue="q")[360] == 1


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("dead_letters", "visible", "fired_at"),
    [([0, 1], 0, [170]), ([0, 0], 0, [220]), ([1, 1], 0, [220]), ([0, 1], 1, [220])],
    ids=["both counts show it", "no dead letter counted", "no more dead letters than before", "some messages are visible"],
)
def test_a_move_that_both_counts_show_is_concluded_at_once(
    tmp_path: Path, dead_letters: list[int], visible: int, fired_at: list[int]
) -> None:
    """Otherwise a minute after the window, which ends at 160 s: a deletion may be reported late."""
    depths = [(150, 2, 1), (170, 2 * visible, 0), (200, visible, 0)]
    events = failing(4, max_receive_count=4)
    events += [ev("queue_state", at, attributes={"visible": v, "in_flight": f, "delayed": 0}) for at, v, f in depths]
    for at, depth in zip((150, 170, 200), [*dead_letters, dead_letters[-1]], strict=True):
        events.append(ev("queue_state", at, "q-dlq", attributes={"visible": depth, "in_flight": 0, "delayed": 0}))
    lines = replayed([*events, ev("heartbeat", 240, consumer="x")], tmp_path)
    assert lines.times("DeadLetterArrived", "firing", queue="q-dlq") == fired_at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fifo", "lost_after_move_d"), [(False, 3), (True, 4)], ids=["standard: from the send", "fifo: from the move"]
)
def test_dead_letter_clocks(tmp_path: Path, fifo: bool, lost_after_move_d: int) -> None:
    """A day in the source, 4 days retention: gone 3 days after the move, on FIFO 4; a day before that it is announced."""
    tail = ".fifo" if fifo else ""
    source, dead = f"q{tail}", f"d{tail}"
    group = {"group": "g", "sequence": "1"} if fifo else {}
    events = [
        ev(
            "queue_state",
            0,
            source,
            attributes={"kind": "fifo" if fifo else "standard", "retention_s": 4 * DAY, "dead_letter_queue": dead},
        ),
        ev("queue_state", 0, dead, attributes={"retention_s": 4 * DAY}),
        ev("sent", 0, source, message_id="m", **group),
        ev("dead_lettered", DAY, source, message_id="m", to_queue=dead, **group),
        ev("heartbeat", 6 * DAY, consumer="x"),
    ]
    lines = replayed(events, tmp_path, every="30m", apart_s=10)
    lost_at = (1 + lost_after_move_d) * DAY
    (announced,) = lines.times("DeadLetterExpiring", "firing", queue=dead)
    assert lost_at - DAY <= announced <= lost_at - DAY + 1800
    (lost,) = lines.times("MessageDropped", "firing", queue=dead, message_id="m")
    (fired,) = lines.signals("MessageDropped", "firing", queue=dead)
    assert fired["evidence"]["summary"].endswith(f"after it {'arrived' if fifo else 'was sent'}.")
    assert lost_at <= lost <= lost_at + 1800
    expiry = lines.metric("dead_letter_expiry_seconds", queue=dead)
    assert expiry[DAY + 1800] == lost_at - DAY - 1800


@pytest.mark.parametrize("reported", [True, False], ids=["send time reported", "not reported"])
def test_the_time_left_of_a_dead_letter_whose_send_time_is_not_reported_is_an_upper_bound(tmp_path: Path, reported: bool) -> None:
    """Its retention runs from its original send, which was before its first event."""
    events = [
        ev("queue_state", 0, "d", attributes={"retention_s": 3600}),
        ev("dead_lettered", 0, "q", message_id="m", to_queue="d", **({"sent_at": ms(0)} if reported else {})),
    ]
    (fired,) = replayed(events, tmp_path, until_s=2880, apart_s=10).signals("DeadLetterExpiring", "firing")
    assert (" at the latest: " in fired["evidence"]["summary"]) is not reported
    assert fired["evidence"].get("time_left_exact") is (None if reported else False)


@pytest.mark.simulation
@pytest.mark.parametrize("named", [True, False], ids=["the source is named", "it is not"])
def test_a_receive_of_a_fifo_dead_letter_does_not_renew_its_retention(tmp_path: Path, named: bool) -> None:
    """It was moved three days ago, and SQS says so: that is its send time there. It is lost a day later, whoever looks at it."""
    about = {"message_id": "m", "group": "g", "sequence": "1", "receive_count": 4, "sent_at": ev("x", 0)["at"]}
    events = [
        ev("queue_state", 3 * DAY, "q.fifo", attributes={"kind": "fifo", "dead_letter_queue": "d.fifo"}),
        ev("queue_state", 3 * DAY, "d.fifo", attributes={"kind": "fifo", "retention_s": 4 * DAY}),
        ev("received", 3 * DAY + 60, "d.fifo", **about, **({"from_queue": "q.fifo"} if named else {})),
        ev("heartbeat", 3 * DAY + 240, consumer="x"),
    ]
    lines = replayed(events, tmp_path)
    (arrived,) = lines.signals("DeadLetterArrived", "firing")
    assert arrived["evidence"]["arrived_at"] == ev("x", 0)["at"]
    assert lines.metric("dead_letter_expiry_seconds", queue="d.fifo")[3 * DAY + 120] == DAY - 120
    assert lines.times("DeadLetterExpiring", "firing") == [3 * DAY + 60]


def test_a_receive_of_a_fifo_dead_letter_does_not_date_its_move(tmp_path: Path) -> None:
    """Nobody reports when it was moved: its age is a lower bound, and how long it waited is not known."""
    events = [ev("received", 0, "d.fifo", message_id="m", from_queue="q.fifo"), ev("deleted", 25, "d.fifo", message_id="m")]
    lines = replayed(events, tmp_path, every="20s")
    assert lines.metric("oldest_message_age_exact", queue="d.fifo", scope="all") == {20: 0}
    assert max(lines.metric("wait_seconds_count", queue="d.fifo").values(), default=0) == 0
    assert max(lines.metric("sojourn_seconds_count", queue="d.fifo").values(), default=0) == 0


@pytest.mark.simulation
def test_a_dead_letter_of_a_broker_without_retention_never_expires(tmp_path: Path) -> None:
    """ActiveMQ keeps dead letters until somebody takes them: after a fortnight none is lost, and nobody is paged."""
    of = {"system": "activemq"}
    events = [
        ev("sent", 0, message_id="m") | of,
        ev("received", 5, message_id="m", consumer="c", receive_count=1) | of,
        ev("dead_lettered", 10, message_id="m", to_queue="DLQ.q") | of,
        *(ev("queue_state", day * DAY, "DLQ.q", attributes={"visible": 1, "in_flight": 0}) | of for day in (1, 8, 15)),
    ]
    lines = replayed(events, tmp_path, every=f"{DAY}s", apart_s=10)
    assert lines.times("DeadLetterArrived", "firing") == [10]
    assert not lines.signals("DeadLetterExpiring")
    assert not lines.signals("MessageDropped")
    assert not lines.metric("dead_letter_expiry_seconds", queue="DLQ.q")
    assert set(lines.metric("messages_expired_total", queue="DLQ.q").values()) == {0}


@pytest.mark.simulation
@pytest.mark.parametrize("kind", ["dropped", "expired"])
def test_message_dropped(tmp_path: Path, kind: str) -> None:
    """Lost by used-up retries or by retention, with the reason; ends after five quiet minutes."""
    events = [
        ev("sent", 0, message_id="m"),
        ev("received", 5, message_id="m", receive_count=3),
        ev(kind, 10, message_id="m", reason="why not"),
    ]
    lines = replayed([*events, ev("heartbeat", 370, consumer="x")], tmp_path)
    (fired,) = lines.signals("MessageDropped", "firing", message_id="m")
    assert (fired["evidence"]["kind"], fired["evidence"]["reason"], fired["evidence"]["receive_count"]) == (kind, "why not", 3)
    assert lines.times("MessageDropped", "resolved") == [310]
    assert lines.metric(f"messages_{kind}_total", queue="q")[360] == 1


@pytest.mark.parametrize(
    "none", [{"dead_letter_queue": None}, {"dead_letter_queue": ""}, {"has_dead_letter_queue": False}], ids=str
)
def test_a_message_given_back_at_its_last_delivery_is_dropped(tmp_path: Path, none: dict[str, Any]) -> None:
    """Cloudflare deletes it where there is no dead-letter queue, in whichever way that is reported."""
    events = [ev("queue_state", 0, attributes={"max_receive_count": 2, **none}), ev("sent", 1, message_id="m")]
    for count in (1, 2):
        events += [
            ev("received", 10 * count, message_id="m", receive_count=count),
            ev("released", 10 * count + 2, message_id="m"),
        ]
    lines = replayed([{**one, "system": "cloudflare_queues"} for one in events], tmp_path, until_s=60)
    assert lines.times("MessageDropped", "firing", message_id="m") == [22]
    assert lines.metric("messages_dropped_total", queue="q")[60] == 1


@pytest.mark.simulation
def test_a_reported_expiry_without_a_reason_is_no_guess(tmp_path: Path) -> None:
    """Only receives are reported, so losses are not inferred there; the broker's own report of one is believed."""
    events = [
        ev("received", 0, message_id="other", receive_count=1, consumer="c"),
        ev("deleted", 5, message_id="other", consumer="c"),
        ev("received", 5, message_id="m", receive_count=1, consumer="c"),
        ev("expired", 50, message_id="m"),
    ]
    lines = replayed([*events, ev("heartbeat", 400, consumer="x")], tmp_path)
    assert {x["labels"]["basis"] for x in lines.lines if x.get("name", "").endswith("_basis") and x["value"]} == {"consumers"}
    (fired,) = lines.signals("MessageDropped", "firing", message_id="m")
    assert fired["evidence"]["kind"] == "expired"
    assert "reason" not in fired["evidence"]
