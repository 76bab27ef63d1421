"""Each signal of the contract: that it fires, when, its evidence, that it ends, and when it must not fire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.core.settings import QueueRule, Settings
from tests.contract.replaying import Lines, ev, replayed

STANDARD: dict[str, Any] = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "q-dlq"}
DAY = 86_400
END = ev("heartbeat", 1, consumer="none", queue="")


def failing(receives: int, every_s: int = 40, message_id: str = "bad", **state: Any) -> list[dict[str, Any]]:
    """Return a message that is received again and again and never deleted."""
    events = [ev("queue_state", 0, attributes=STANDARD | state), ev("sent", 0, message_id=message_id)]
    return events + [ev("received", 10 + n * every_s, message_id=message_id, receive_count=n + 1) for n in range(receives)]


@pytest.mark.parametrize(
    ("max_receive_count", "fires_at_receive"),
    [(4, 3), (10, 3), (2, 2), (1, 2)],
    ids=["three", "never later than three", "at its last of two", "never at the first"],
)
def test_poison_message_fires_at_min_3_max_2_n(tmp_path: Path, max_receive_count: int, fires_at_receive: int) -> None:
    """receive_count >= min(3, max(2, max_receive_count)), at that receive and not before."""
    lines = replayed(failing(4, max_receive_count=max_receive_count), tmp_path)
    assert lines.times("PoisonMessage", "firing", message_id="bad") == [10 + (fires_at_receive - 1) * 40]


def test_poison_message_says_what_is_left_and_ends_when_settled(tmp_path: Path) -> None:
    """Evidence: receives left, final attempt; resolved by the deletion."""
    events = [*failing(4), ev("deleted", 140, message_id="bad")]
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("PoisonMessage", "firing")
    (ended,) = lines.signals("PoisonMessage", "resolved")
    assert (fired["evidence"]["receives_left"], fired["evidence"]["final_attempt"]) == (1, False)
    assert (ended["evidence"]["receives_left"], ended["evidence"]["final_attempt"]) == (0, True)
    assert lines.times("PoisonMessage", "resolved") == [140]
    assert fired["queue"] == "q"
    assert fired["system"] == "aws_sqs"


def test_poison_counts_receives_without_a_count(tmp_path: Path) -> None:
    """Where the system reports no count, receives are counted; the same receive reported twice counts once."""
    receives = [ev("received", 10 + 40 * n, message_id="m") for n in range(3)]
    lines = replayed([*receives[:2], receives[1], receives[2]], tmp_path)
    assert lines.times("PoisonMessage", "firing") == [90]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("visibility_s", "fires_after_s", "extended"),
    [(30, 900, "at least 32 extensions"), (300, 1500, "5 extensions")],
    ids=["a timeline that was cut", "a whole one"],
)
def test_held_too_long(tmp_path: Path, visibility_s: int, fires_after_s: int, extended: str) -> None:
    """In flight without a break, by extensions, for longer than max(5 x visibility timeout, 15 min)."""
    step = visibility_s - 5
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": visibility_s}), ev("sent", 0, message_id="m")]
    events.append(ev("received", 10, message_id="m", receive_count=1, consumer="c"))
    for at in range(10 + step, 2000, step):
        events.append(ev("extended", at, message_id="m", invisible_until=events[0]["at"] + (at + visibility_s) * 1000))
    events.append(ev("deleted", 2000, message_id="m"))
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("MessageHeldTooLong", "firing", message_id="m")
    (fired_at,) = lines.times("MessageHeldTooLong", "firing", message_id="m")
    assert fired["evidence"]["limit_s"] == fires_after_s
    assert fired["evidence"]["extensions_exact"] is not extended.startswith("at least")
    assert f"({extended})" in fired["evidence"]["summary"]
    assert 10 + fires_after_s < fired_at <= 10 + fires_after_s + 2
    assert lines.times("MessageHeldTooLong", "resolved") == [2000]


@pytest.mark.slow
def test_held_is_broken_by_a_return(tmp_path: Path) -> None:
    """A message that becomes visible in between is not held without a break."""
    events = [ev("sent", 0, message_id="m")]
    events += [ev("received", 1 + 35 * n, message_id="m", receive_count=n + 1) for n in range(40)]
    assert not replayed(events, tmp_path).signals("MessageHeldTooLong")


@pytest.mark.slow
def test_each_dead_letter_is_announced_and_all_end_five_minutes_after_the_last(tmp_path: Path) -> None:
    """0→1 is not enough: a second arrival fires again while the first still does."""
    events = [ev("queue_state", 0, attributes=STANDARD)]
    for at, name in ((10, "a"), (200, "b"), (1000, "c")):
        events += [ev("sent", at - 5, message_id=name), ev("dead_lettered", at, message_id=name, to_queue="q-dlq")]
    lines = replayed([*events, ev("heartbeat", 2000, consumer="x")], tmp_path)
    assert lines.times("DeadLetterArrived", "firing", queue="q-dlq") == [10, 200, 1000]
    assert lines.times("DeadLetterArrived", "resolved", queue="q-dlq") == [500, 500, 1300]
    assert {x["message_id"] for x in lines.signals("DeadLetterArrived")} == {"a", "b", "c"}
    assert lines.metric("messages_dead_lettered_total", queue="q")[1980] == 3


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
    lines = replayed(events, tmp_path, every="30m")
    lost_at = (1 + lost_after_move_d) * DAY
    (announced,) = lines.times("DeadLetterExpiring", "firing", queue=dead)
    assert lost_at - DAY <= announced <= lost_at - DAY + 1800
    (lost,) = lines.times("MessageDropped", "firing", queue=dead, message_id="m")
    assert lost_at <= lost <= lost_at + 1800
    expiry = lines.metric("dead_letter_expiry_seconds", queue=dead)
    assert expiry[DAY + 1800] == lost_at - DAY - 1800


FIFO: dict[str, Any] = {"kind": "fifo", "visibility_timeout_s": 20}


def group(n: int, name: str, at_s: float = 0) -> list[dict[str, Any]]:
    """Return `n` messages of one ordering group."""
    return [ev("sent", at_s + i / 10, "f.fifo", message_id=f"{name}{i}", group=name, sequence=str(10**19 + i)) for i in range(n)]


def flowing(name: str, until_s: int) -> list[dict[str, Any]]:
    """Return a group whose messages are received and deleted throughout."""
    out = []
    for i, at in enumerate(range(0, until_s, 10)):
        about = {"message_id": f"{name}{i}", "group": name}
        out += [
            ev("sent", at, "f.fifo", sequence=str(2 * 10**19 + i), **about),
            ev("received", at + 1, "f.fifo", receive_count=1, **about),
        ]
        out += [ev("deleted", at + 2, "f.fifo", **about)]
    return out


def receives(message_id: str, times: list[float], **more: Any) -> list[dict[str, Any]]:
    """Return receives of a group's head."""
    return [
        ev("received", at, "f.fifo", message_id=message_id, group="A", receive_count=n + 1, **more) for n, at in enumerate(times)
    ]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (receives("A0", [1, 22, 43, 64]), "poison_head"),
        (receives("A0", [1], invisible_until=ev("x", 3600)["at"]), "held_head"),
        ([], "not_received"),
    ],
    ids=["poison_head", "held_head", "not_received"],
)
def test_group_stuck_names_group_head_reason_and_what_waits(tmp_path: Path, head: list[dict[str, Any]], reason: str) -> None:
    """No message of the group is settled for max(2 x visibility, 60 s) while others flow; it ends when the head is settled."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO), *group(5, "A"), *head, *flowing("B", 200)]
    events += [ev("deleted", 150, "f.fifo", message_id="A0", group="A")]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path)
    (fired,) = lines.signals("GroupStuck", "firing", group="A")
    assert fired["at"] == ev("x", 60)["at"]
    assert fired["evidence"]["reason"] == reason
    assert fired["evidence"]["head_message_id"] == "A0"
    assert fired["evidence"]["waiting_behind"] == 4
    assert lines.times("GroupStuck", "resolved", group="A") == [150]
    assert not lines.signals("GroupStuck", group="B")


@pytest.mark.parametrize(
    "events",
    [
        [*group(1, "A"), *receives("A0", [1, 22, 43])],
        [*group(5, "A"), ev("heartbeat", 200, consumer="x")],
        [ev("sent", 0, "f.fifo", message_id="A0", group="A", sequence="1", visible_at=ev("x", 500)["at"]), *group(3, "A", 5)],
    ],
    ids=["nothing waits behind", "nobody receives anything", "the head is merely delayed"],
)
def test_group_not_stuck(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    """Similar cases that must not fire: QueueStalled covers a queue without consumers."""
    lines = replayed([ev("queue_state", 0, "f.fifo", attributes=FIFO), *events, ev("heartbeat", 210, consumer="x")], tmp_path)
    assert not lines.signals("GroupStuck")


@pytest.mark.parametrize(
    ("ahead", "look_ahead", "hidden"),
    [(19_999, 20_000, None), (20_000, 20_000, 2), (20_000, None, None), (120_000, None, 2)],
    ids=["one fewer", "20,000 as in older accounts", "the default is 120,000", "120,000"],
)
def test_look_ahead(tmp_path: Path, ahead: int, look_ahead: int | None, hidden: int | None) -> None:
    """Messages of one blocked group in front hide two other groups, from exactly the look-ahead on."""
    reported = {} if look_ahead is None else {"look_ahead": look_ahead}
    events = [ev("queue_state", 0, "f.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 600, **reported})]
    for i in range(ahead):
        events.append(ev("sent", i / 10_000, "f.fifo", message_id=f"a{i}", group="A", sequence=str(10**19 + i)))
    for i, name in enumerate("BC"):
        events.append(ev("sent", 13 + i, "f.fifo", message_id=name, group=name, sequence=str(2 * 10**19 + i)))
    events += [ev("received", 16, "f.fifo", message_id="a0", group="A", receive_count=1), ev("heartbeat", 20, consumer="x")]
    lines = replayed(events, tmp_path)
    fired = lines.signals("LookAheadSaturated", "firing")
    assert [x["evidence"]["hidden_messages"] for x in fired] == ([] if hidden is None else [hidden])
    if fired:
        assert fired[0]["evidence"]["blocking_group"] == "A"
        assert lines.metric("groups", queue="f.fifo", state="hidden")[20] == 2


def test_delayed_messages_do_not_block_a_group(tmp_path: Path) -> None:
    """They are in front, but delayed: other groups are still found."""
    later = ev("x", 900)["at"]
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"look_ahead": 10})]
    events += [ev("sent", i / 100, "f.fifo", message_id=f"a{i}", group="A", sequence=str(i), visible_at=later) for i in range(20)]
    events += [ev("sent", 5, "f.fifo", message_id="b", group="B", sequence="99"), ev("heartbeat", 20, consumer="x")]
    assert not replayed(events, tmp_path).signals("LookAheadSaturated")


def test_a_message_that_failed_blocks_its_group_until_it_is_visible(tmp_path: Path) -> None:
    """As Lambda reports it: released at once, received again when the window ends. SQS has it in flight throughout."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"look_ahead": 10})]
    events += [ev("sent", i / 100, "f.fifo", message_id=f"a{i}", group="A", sequence=str(i)) for i in range(20)]
    events.append(ev("sent", 5, "f.fifo", message_id="b", group="B", sequence="99"))
    for n in range(6):
        about = {"message_id": "a0", "group": "A"}
        until = ev("x", 10 + 30 * (n + 1))["at"]
        events.append(ev("received", 10 + 30 * n, "f.fifo", receive_count=n + 1, invisible_until=until, **about))
        events.append(ev("released", 11 + 30 * n, "f.fifo", visible_at=until, **about))
    lines = replayed([*events, ev("heartbeat", 200, consumer="x")], tmp_path, every="10s")
    assert lines.times("LookAheadSaturated", "firing") == [10]
    assert lines.times("LookAheadSaturated", "resolved") == [190]
    assert lines.metric("groups", queue="f.fifo", state="in_flight")[60] == 1
    (stuck,) = lines.signals("GroupStuck", "firing")
    assert stuck["at"] == ev("x", 60)["at"]


def test_concurrency_collapsed(tmp_path: Path) -> None:
    """One group in flight for five minutes while six have backlog."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO)]
    for name in "ABCDEF":
        events += group(3, name)
    events += [ev("received", 10 + 15 * n, "f.fifo", message_id="A0", group="A", receive_count=n + 1) for n in range(30)]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path)
    (at,) = lines.times("ConcurrencyCollapsed", "firing")
    assert 300 <= at <= 303


@pytest.mark.parametrize("finish", [False, True], ids=["no_receives", "no_progress"])
def test_queue_stalled_and_its_reasons(tmp_path: Path, finish: bool) -> None:
    """A visible backlog of which nothing is settled for five minutes; a settlement ends it."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    events += [ev("sent", n, message_id=f"m{n}") for n in range(10)]
    if finish:
        events += [ev("received", 20 + 31 * n, message_id=f"m{n % 3}", receive_count=n // 3 + 1) for n in range(12)]
    events += [ev("deleted", 400, message_id="m0")]
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("QueueStalled", "firing")
    assert fired["at"] == ev("x", 300)["at"]
    assert fired["evidence"]["reason"] == ("no_progress" if finish else "no_receives")
    assert lines.times("QueueStalled", "resolved") == [400]


@pytest.mark.slow
def test_a_quiet_queue_raises_nothing(tmp_path: Path) -> None:
    """A day with one message every twenty minutes: no signal, and status ok throughout."""
    events = []
    for n in range(72):
        about = {"message_id": f"m{n}"}
        events += [
            ev("sent", 1200 * n, **about),
            ev("received", 1200 * n + 2, receive_count=1, **about),
            ev("deleted", 1200 * n + 3, **about),
        ]
    lines = replayed(events, tmp_path, every="5m")
    assert not lines.signals()
    assert set(lines.metric("queue_status", status="ok").values()) == {1}


def test_slow_consumer_compares_with_what_is_usual_here(tmp_path: Path) -> None:
    """With a median hold of 8 s the limit is ten times that, not 30 s."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 600})]
    for n in range(20):
        about = {"message_id": f"m{n}"}
        events += [ev("sent", 10 * n, **about), ev("received", 10 * n + 1, receive_count=1, consumer="quick", **about)]
        events += [ev("deleted", 10 * n + 9, **about)]
    events += [ev("sent", 200, message_id="slow"), ev("received", 201, message_id="slow", receive_count=1, consumer="hung")]
    lines = replayed(sorted([*events, ev("deleted", 400, message_id="slow")], key=lambda e: e["at"]), tmp_path)
    (fired,) = lines.signals("SlowConsumer", "firing")
    assert (fired["consumer"], fired["evidence"]["message_id"], fired["evidence"]["strategy"]) == ("hung", "slow", "hold")
    assert 201 + 65 < (fired["at"] - ev("x", 0)["at"]) / 1000 < 201 + 100
    assert lines.times("SlowConsumer", "resolved") == [400]


def test_batch_retry_storm(tmp_path: Path) -> None:
    """Batches of ten fail because of one bad message each: nine good ones of each are redelivered."""
    events = []
    for n in range(6):
        at = 20.0 * n
        for m in range(10):
            events.append(
                ev("received", at, message_id=f"m{m}", receive_count=n + 1, batch_id=f"b{n}", system="cloudflare_queues")
            )
        events.append(
            ev(
                "batch",
                at + 1,
                batch_id=f"b{n}",
                attributes={"size": 10, "failed": 1, "acked": 0, "retried": 10},
                system="cloudflare_queues",
            )
        )
    lines = replayed([*events, ev("heartbeat", 800, consumer="x")], tmp_path)
    (fired,) = lines.signals("BatchRetryStorm", "firing")
    assert fired["evidence"]["redeliveries_from_failed_batches"] >= 10
    assert lines.signals("BatchRetryStorm", "resolved")


@pytest.mark.parametrize("kind", ["dropped", "expired"])
def test_message_dropped(tmp_path: Path, kind: str) -> None:
    """Lost by used-up retries or by retention, with the reason; ends after five quiet minutes."""
    events = [
        ev("sent", 0, message_id="m"),
        ev("received", 5, message_id="m", receive_count=3),
        ev(kind, 10, message_id="m", reason="why not"),
    ]
    lines = replayed([*events, ev("heartbeat", 700, consumer="x")], tmp_path)
    (fired,) = lines.signals("MessageDropped", "firing", message_id="m")
    assert (fired["evidence"]["kind"], fired["evidence"]["reason"], fired["evidence"]["receive_count"]) == (kind, "why not", 3)
    assert lines.times("MessageDropped", "resolved") == [310]
    assert lines.metric(f"messages_{kind}_total", queue="q")[660] == 1


@pytest.mark.parametrize(("in_flight", "fires"), [(29, False), (30, True)])
def test_noisy_group(tmp_path: Path, in_flight: int, fires: bool) -> None:
    """A fair queue's group with more than 10 % of what is in flight and at least 30 messages."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 300})]
    for n in range(in_flight + 10):
        about = {"message_id": f"m{n}", "group": "loud"}
        events.append(ev("sent", n / 100, **about))
        if n < in_flight:
            events.append(ev("received", 1 + n / 100, receive_count=1, **about))
    events += [ev("sent", 2, message_id="x", group="calm"), ev("heartbeat", 60, consumer="x")]
    lines = replayed(events, tmp_path)
    assert [x["group"] for x in lines.signals("NoisyGroup", "firing")] == (["loud"] if fires else [])


def test_telemetry_stale(tmp_path: Path) -> None:
    """A collector is silent for two minutes, not a second earlier; the signal ends with its next event."""
    events = [ev("heartbeat", 30 * n, consumer="sqs-1", queue="") for n in range(5)] + [
        ev("heartbeat", 300, consumer="sqs-1", queue="")
    ]
    lines = replayed(events, tmp_path)
    assert lines.times("TelemetryStale", "firing", consumer="sqs-1") == [240]
    assert lines.times("TelemetryStale", "resolved", consumer="sqs-1") == [300]


@pytest.mark.parametrize(
    ("tracked", "counted", "fires"), [(89, 100, True), (90, 100, False), (110, 100, False), (111, 100, True)]
)
def test_telemetry_partial_and_coverage(tmp_path: Path, tracked: int, counted: int, fires: bool) -> None:
    """Outside 90 to 110 % of the broker's own count for ten minutes."""
    events = [ev("sent", n / 100, message_id=f"m{n}") for n in range(tracked)]
    states = [ev("queue_state", 5 + 60 * n, attributes={"visible": counted, "in_flight": 0, "delayed": 0}) for n in range(13)]
    lines = replayed([*events, *states], tmp_path)
    assert bool(lines.signals("TelemetryPartial", "firing")) is fires
    assert lines.metric("telemetry_coverage_ratio", queue="q")[600] == tracked / counted
    if fires:
        assert 605 <= lines.times("TelemetryPartial", "firing")[0] <= 607


LINT = [
    ("redrive_type_mismatch", {"kind": "standard", "dead_letter_queue": "d.fifo"}, {"kind": "fifo"}),
    ("dead_letter_retention", {"retention_s": 4 * DAY, "dead_letter_queue": "d"}, {"retention_s": 4 * DAY}),
    ("single_receive", {"max_receive_count": 1, "dead_letter_queue": "d"}, {"retention_s": 14 * DAY}),
    ("no_dead_letter_queue", {"kind": "standard", "dead_letter_queue": None}, {}),
    ("allow_policy", {"dead_letter_queue": "d"}, {"redrive_allow_policy": {"permission": "denyAll"}}),
    ("allow_policy", {"dead_letter_queue": "d"}, {"redrive_allow_policy": {"permission": "byQueue", "sources": ["other"]}}),
    ("backoff_beyond_cap", {"retry_delay_s": 50_000, "dead_letter_queue": "d"}, {}),
]


@pytest.mark.parametrize(("rule", "own", "theirs"), LINT, ids=[f"{rule}-{i}" for i, (rule, _, _) in enumerate(LINT)])
def test_misconfigured(tmp_path: Path, rule: str, own: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Each rule of the lint fires with the fix in words, and ends when the setting is corrected."""
    dead = own.get("dead_letter_queue") or "d"
    events = [
        ev("queue_state", 0, attributes=own),
        ev("queue_state", 0, dead, attributes=theirs),
        ev("heartbeat", 60, consumer="x"),
    ]
    fired = replayed(events, tmp_path).signals("QueueMisconfigured", "firing", queue="q")
    assert [x["evidence"]["rule"] for x in fired] == [rule]
    assert len(fired[0]["evidence"]["summary"]) > 40


def test_thresholds_by_pattern(tmp_path: Path) -> None:
    """A queue's own limits count for it alone."""
    settings = Settings(rules=(QueueRule("b*", {"poison_receives": 2}),))
    events = []
    for queue in ("a", "b"):
        events += [ev("received", 10 + 40 * n, queue, message_id="m", receive_count=n + 1) for n in range(2)]
    lines: Lines = replayed(events, tmp_path, settings=settings)
    assert [x["queue"] for x in lines.signals("PoisonMessage", "firing")] == ["b"]
