"""The signals about one message: poison and held too long. When each fires, its evidence, and that it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.failing import failing
from tests.contract.replaying import ev, ms, replayed


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("max_receive_count", "fires_at_receive"),
    [(4, 3), (10, 3), (2, 2), (1, 2)],
    ids=["three", "never later than three", "at its last of two", "never at the first"],
)
def test_poison_message_fires_at_min_3_max_2_n(tmp_path: Path, max_receive_count: int, fires_at_receive: int) -> None:
    """receive_count >= min(3, max(2, max_receive_count)), at that receive and not before."""
    lines = replayed(failing(4, max_receive_count=max_receive_count), tmp_path)
    assert lines.times("PoisonMessage", "firing", message_id="bad") == [10 + (fires_at_receive - 1) * 40]


@pytest.mark.simulation
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


@pytest.mark.parametrize("reported", [True, False], ids=["send time reported", "not reported"])
def test_an_age_without_a_reported_send_time_is_marked_as_a_lower_bound(tmp_path: Path, reported: bool) -> None:
    """It counts from the message's first event: in the evidence and in words of poison, stuck groups and losses."""
    fields = {"message_id": "m", "group": "g", "sequence": "1"} | ({"sent_at": ms(0)} if reported else {})
    events = [ev("received", 10 + 40 * n, "q.fifo", receive_count=n + 3, **fields) for n in range(3)]
    events += [
        ev("sent", 20, "q.fifo", message_id="behind", group="g", sequence="2"),
        ev("dropped", 100, "q.fifo", message_id="m"),
    ]
    lines = replayed(sorted(events, key=lambda event: event["at"]), tmp_path, until_s=110)
    poison, stuck, lost = (lines.signals(name, "firing")[-1] for name in ("PoisonMessage", "GroupStuck", "MessageDropped"))
    marks = [poison["evidence"].get("age_exact"), stuck["evidence"].get("head_age_exact"), lost["evidence"].get("age_exact")]
    assert marks == ([None] * 3 if reported else [False] * 3)
    assert ("10 s after it was sent" if reported else "at least 0 s after it was sent") in poison["evidence"]["summary"]
    assert ("100 s after it was sent" if reported else "at least 90 s after it was sent") in lost["evidence"]["summary"]


def test_no_age_is_negative_where_the_senders_clock_is_ahead(tmp_path: Path) -> None:
    """The message was sent three seconds after it was received and lost, by the clock of its sender."""
    fields = {"message_id": "m", "group": "g", "sequence": "1", "sent_at": ms(3)}
    events = [ev("received", 0, "q.fifo", receive_count=3, **fields), ev("dropped", 1, "q.fifo", message_id="m")]
    lines = replayed(events, tmp_path, every="1s", until_s=10)
    assert [line["evidence"]["age_s"] for line in lines.signals() if "age_s" in line["evidence"]] == [0, 0, 0]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"dead_letter_queue": ""}, "there is no receive limit: it comes back until its retention runs out"),
        ({"has_dead_letter_queue": False}, "there is no receive limit: it comes back until its retention runs out"),
        ({}, "its receive limit is unknown"),
    ],
    ids=["no dead-letter queue", "none, by another attribute", "nothing reported"],
)
def test_poison_message_says_whether_there_is_a_receive_limit(tmp_path: Path, attributes: dict[str, Any], said: str) -> None:
    """SQS counts receives against a limit only where there is a dead-letter queue."""
    events = [ev("queue_state", 5, attributes={"visible": 1, **attributes})]
    events += [ev("received", 10 + 40 * n, message_id="m") for n in range(3)]
    (fired,) = replayed(events, tmp_path).signals("PoisonMessage", "firing")
    assert fired["evidence"]["summary"].endswith(f"; {said}.")
    assert fired["evidence"].get("has_dead_letter_queue") is (False if attributes else None)


WHOLE_LIFE = ("sent", "received", "deleted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("visibility_s", "fires_after_s", "extended"),
    [(30, 900, "at least 31 extensions"), (300, 1500, "5 extensions")],
    ids=["a timeline that was cut", "a whole one"],
)
def test_held_too_long(tmp_path: Path, visibility_s: int, fires_after_s: int, extended: str) -> None:
    """In flight without a break, by extensions, for longer than max(5 x visibility timeout, 15 min)."""
    step, until_s = visibility_s - 5, fires_after_s + 60
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": visibility_s}), ev("sent", 0, message_id="m")]
    events.append(ev("received", 10, message_id="m", receive_count=1, consumer="c"))
    for at in range(10 + step, until_s, step):
        events.append(ev("extended", at, message_id="m", invisible_until=events[0]["at"] + (at + visibility_s) * 1000))
    events.append(ev("deleted", until_s, message_id="m"))
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("MessageHeldTooLong", "firing", message_id="m")
    (fired_at,) = lines.times("MessageHeldTooLong", "firing", message_id="m")
    assert fired["evidence"]["limit_s"] == fires_after_s
    assert fired["evidence"]["extensions_exact"] is not extended.startswith("at least")
    assert f"({extended})" in fired["evidence"]["summary"]
    assert 10 + fires_after_s < fired_at <= 10 + fires_after_s + 2
    assert lines.times("MessageHeldTooLong", "resolved") == [until_s]


@pytest.mark.slow
def test_held_too_long_where_only_extensions_are_reported(tmp_path: Path) -> None:
    """The first of them shows that it was received, also when it is kept no more. Other messages are received and deleted."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    for n in range(20):
        events += [ev(what, 50 * n + after_s, message_id=f"m{n}", consumer="c") for after_s, what in enumerate(WHOLE_LIFE)]
    events += [ev("extended", at, message_id="m", invisible_until=ms(at + 30)) for at in range(100, 1_200, 25)]
    lines = replayed(sorted(events, key=lambda e: e["at"]), tmp_path, apart_s=5)
    (fired,) = lines.signals("MessageHeldTooLong", "firing")
    assert (fired["message_id"], fired["evidence"]["limit_s"]) == ("m", 900)
    assert lines.times("MessageHeldTooLong", "firing") == pytest.approx([1_005], abs=5)


@pytest.mark.slow
def test_held_is_broken_by_a_return(tmp_path: Path) -> None:
    """A message that becomes visible in between is not held without a break."""
    events = [ev("sent", 0, message_id="m")]
    events += [ev("received", 1 + 35 * n, message_id="m", receive_count=n + 1) for n in range(40)]
    assert not replayed(events, tmp_path, apart_s=5).signals("MessageHeldTooLong")
