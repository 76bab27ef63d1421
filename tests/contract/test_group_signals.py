"""The signals about ordering groups: stuck groups, the look-ahead, and collapsed concurrency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import ev, replayed

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


@pytest.mark.simulation
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


@pytest.mark.simulation
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


@pytest.mark.simulation
def test_groups_of_a_backlog_that_wait_for_their_turn_are_not_stuck(tmp_path: Path) -> None:
    """A nightly batch of 40 groups, ten messages of each sent over four minutes: one receive takes all of a group.

    So messages are received that are younger than the heads of the groups whose turn has not come.
    """
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO)]
    for g in range(40):
        for i in range(10):
            about = {"message_id": f"{g}-{i}", "group": f"g{g}"}
            events.append(ev("sent", i * 25 + g / 2, "f.fifo", sequence=str(10**19 + i * 100 + g), **about))
            begin = 260 + 10 * g
            events.append(ev("received", begin, "f.fifo", receive_count=1, **about))
            events.append(ev("deleted", begin + 0.9 * (i + 1), "f.fifo", **about))
    lines = replayed(sorted(events, key=lambda e: int(e["at"])), tmp_path)
    assert not lines.signals("GroupStuck")


@pytest.mark.simulation
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


def test_groups_of_which_only_delayed_messages_are_beyond_are_not_hidden(tmp_path: Path) -> None:
    """Nothing of them could be received anyway."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"look_ahead": 3}), *group(5, "A")]
    for i, name in enumerate("BCDE"):
        later = {} if name == "B" else {"visible_at": ev("x", 900)["at"]}
        events.append(ev("sent", 1, "f.fifo", message_id=name, group=name, sequence=str(2 * 10**19 + i), **later))
    lines = replayed([*events, *receives("A0", [2])], tmp_path, every="5s")
    (fired,) = lines.signals("LookAheadSaturated", "firing")
    assert (fired["evidence"]["hidden_messages"], fired["evidence"]["hidden_groups"]) == (1, 1)
    assert lines.metric("groups", queue="f.fifo", state="hidden")[2] == 1


def retried(times: list[float], window_s: float, until_s: float) -> list[dict[str, Any]]:
    """Return a head that is received at these times and never deleted, with messages behind it; another group flows."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"visibility_timeout_s": window_s, "max_receive_count": 50})]
    events += [ev("sent", i / 100, "f.fifo", message_id=f"a{i}", group="A", sequence=str(i)) for i in range(5)]
    for n, at in enumerate(times):
        events.append(ev("received", at, "f.fifo", message_id="a0", group="A", receive_count=n + 1))
    for i in range(int(until_s) // 20):
        about = {"message_id": f"b{i}", "group": f"B{i}"}
        events += [ev("sent", 20 * i + 5, "f.fifo", sequence=str(100 + i), **about)]
        events += [ev("received", 20 * i + 6, "f.fifo", receive_count=1, **about), ev("deleted", 20 * i + 7, "f.fifo", **about)]
    return sorted(events, key=lambda e: int(e["at"]))


@pytest.mark.simulation
def test_a_head_that_is_retried_rarely_keeps_its_group_stuck(tmp_path: Path) -> None:
    """Its window is over long before the next try. One line says that the group is stuck, until it moves."""
    alone = [e for e in retried([9 + 120 * n for n in range(8)], 30, 0) if e.get("group") in (None, "A")]
    alone.append(ev("deleted", 980, "f.fifo", message_id="a0"))
    lines = replayed(alone, tmp_path, every="30s", until_s=1_000)
    fired, resolved = (lines.times("GroupStuck", status, group="A") for status in ("firing", "resolved"))
    assert (fired, resolved) == ([60], [980])


@pytest.mark.simulation
def test_a_head_that_came_back_counts_by_the_contract_even_with_a_long_window(tmp_path: Path) -> None:
    """Twice the window of 600 s without a settlement, and a minute for the consumer that has just received it."""
    lines = replayed(retried([540, 1_141], 600, 1_300), tmp_path, every="60s", until_s=1_300, apart_s=5)
    assert lines.times("GroupStuck", "firing", group="A") == [pytest.approx(1_201, abs=6)]


@pytest.mark.simulation
@pytest.mark.parametrize(("tries", "fired"), [([10], 60), ([10, 45], 65)], ids=["once", "twice"])
def test_a_stuck_group_stays_so_when_nobody_receives_any_more(tmp_path: Path, tries: list[float], fired: int) -> None:
    """It is announced once, and resolved when its head is settled: that consumers went away mends nothing."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO), *group(3, "A"), *receives("A0", tries)]
    lines = replayed([*events, ev("deleted", 420, "f.fifo", message_id="A0", group="A")], tmp_path)
    assert lines.times("GroupStuck", "firing", group="A") == [fired]
    assert lines.times("GroupStuck", "resolved", group="A") == [420]
    assert lines.metric("stuck_groups", queue="f.fifo")[360] == 1
    assert lines.times("QueueStalled", "firing") == [300]


@pytest.mark.simulation
def test_between_two_tries_of_its_head_a_blocked_group_still_hides_the_others(tmp_path: Path) -> None:
    """The head is visible for a second each time; nothing beyond the look-ahead can be received in it."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"look_ahead": 10})]
    events += [ev("sent", i / 100, "f.fifo", message_id=f"a{i}", group="A", sequence=str(i)) for i in range(20)]
    events.append(ev("sent", 5, "f.fifo", message_id="b", group="B", sequence="99"))
    tries = range(10, 300, 21)
    events += [ev("received", at, "f.fifo", message_id="a0", group="A", receive_count=n + 1) for n, at in enumerate(tries)]
    events.append(ev("deleted", 300, "f.fifo", message_id="a0"))
    lines = replayed(events, tmp_path, every="1s", until_s=320)
    assert lines.times("LookAheadSaturated", "firing") == [10]
    assert lines.times("LookAheadSaturated", "resolved") == [305]


@pytest.mark.simulation
def test_a_group_that_fills_the_front_hides_the_others_while_its_backlog_is_worked_off(tmp_path: Path) -> None:
    """Between two of its messages nothing is in flight for a second: one incident is one signal. It ends with the backlog."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO | {"look_ahead": 10})]
    events += [ev("sent", i / 100, "f.fifo", message_id=f"a{i}", group="A", sequence=str(i)) for i in range(30)]
    events.append(ev("sent", 5, "f.fifo", message_id="b", group="B", sequence="99"))
    for i in range(30):
        about = {"message_id": f"a{i}", "group": "A"}
        events.append(ev("received", 10 + 10 * i, "f.fifo", receive_count=1, **about))
        events.append(ev("deleted", 18.5 + 10 * i, "f.fifo", **about))
    lines = replayed(events, tmp_path, every="10s", until_s=320)
    assert lines.times("LookAheadSaturated", "firing") == [10]
    # After twenty messages B is the eleventh, and then within the look-ahead.
    assert lines.times("LookAheadSaturated", "resolved") == [pytest.approx(218.5, abs=1)]


@pytest.mark.simulation
def test_a_message_that_failed_blocks_its_group_until_it_is_visible(tmp_path: Path) -> None:
    """As Lambda reports it: released at once, received again when the window ends. SQS has it in flight throughout.

    Until five seconds after that, as consumers that poll would receive it at once.
    """
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
    assert lines.times("LookAheadSaturated", "resolved") == [195]
    assert lines.metric("groups", queue="f.fifo", state="in_flight")[60] == 1
    (stuck,) = lines.signals("GroupStuck", "firing")
    assert stuck["at"] == ev("x", 60)["at"]


@pytest.mark.simulation
def test_concurrency_collapsed(tmp_path: Path) -> None:
    """One group in flight for five minutes while six have backlog."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO)]
    for name in "ABCDEF":
        events += group(3, name)
    events += [ev("received", 10 + 15 * n, "f.fifo", message_id="A0", group="A", receive_count=n + 1) for n in range(30)]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path)
    (fired,) = lines.signals("ConcurrencyCollapsed", "firing")
    assert 300 <= (fired["at"] - ev("x", 0)["at"]) / 1000 <= 303
    assert fired["evidence"]["summary"].endswith(": consumers work one group at a time.")


@pytest.mark.simulation
def test_a_collapse_between_two_messages_of_its_group_says_how_many_groups_were_in_flight(tmp_path: Path) -> None:
    """None is at that moment; over the five minutes it was one."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO), *(e for name in "BCDEF" for e in group(3, name))]
    for n in range(34):
        about = {"message_id": f"A{n}", "group": "A", "sequence": str(n)}
        events += [ev("sent", 1, "f.fifo", **about), ev("received", 12 + 10 * n, "f.fifo", receive_count=1, **about)]
        events.append(ev("deleted", 16 + 10 * n, "f.fifo", **about))
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path)
    (fired,) = lines.signals("ConcurrencyCollapsed", "firing")
    assert fired["evidence"]["groups_in_flight"] == 0
    assert fired["evidence"]["summary"].startswith("For 5 min, at most 1 of 6 groups of f.fifo in flight while 6 have messages")


@pytest.mark.simulation
def test_a_collapse_without_consumers_says_so(tmp_path: Path) -> None:
    """Not that they work one group at a time."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO), *(e for name in "ABCDEF" for e in group(3, name))]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path, until_s=400)
    (fired,) = lines.signals("ConcurrencyCollapsed", "firing")
    assert fired["evidence"]["summary"].endswith(": consumers receive nothing.")


@pytest.mark.simulation
def test_of_messages_sent_at_once_the_received_one_is_the_head(tmp_path: Path) -> None:
    """Without `sequence`, what was delivered shows the order of the group, whatever the names of its queue and messages."""
    received = {f"q{n}.fifo": "abc"[n % 3] for n in range(12)}
    events = [ev("queue_state", 0, queue, attributes=FIFO) for queue in received]
    events += [ev("sent", 1, queue, message_id=name, group="A") for queue in received for name in "abc"]
    for n, at in enumerate((2, 23, 44)):
        events += [ev("received", at, q, message_id=name, group="A", receive_count=n + 1) for q, name in received.items()]
    fired = replayed(events, tmp_path, until_s=100).signals("GroupStuck", "firing")
    assert {x["queue"]: x["evidence"]["head_message_id"] for x in fired} == received
    assert {x["at"] for x in fired} == {ev("x", 61)["at"]}


@pytest.mark.simulation
def test_a_group_whose_messages_are_all_delayed_is_no_backlog(tmp_path: Path) -> None:
    """One group is worked off a message at a time; it has more visible messages than groups make a backlog."""
    events = [ev("queue_state", 0, "f.fifo", attributes=FIFO), *group(40, "A")]
    for i in range(40):
        about = {"message_id": f"A{i}", "group": "A"}
        events += [ev("received", 5 + 10 * i, "f.fifo", receive_count=1, **about), ev("deleted", 14 + 10 * i, "f.fifo", **about)]
    later = {"sequence": str(9 * 10**19), "visible_at": ev("x", 900)["at"]}
    events += [ev("sent", 4, "f.fifo", message_id=name, group=name, **later) for name in "BCDEFG"]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path, until_s=360)
    assert not lines.signals("ConcurrencyCollapsed")
    assert {lines.metric("groups", queue="f.fifo", state=state)[360] for state in ("backlog", "blocked")} == {1}
