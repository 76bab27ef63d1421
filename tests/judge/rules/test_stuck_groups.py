"""Groups whose head is long work: while a consumer extends it within what is usual, it is shown and pages nobody."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.judge.findings.signals import Finding
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
NAME = "f.fifo"
QUEUE = ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 30})


def extended(
    group: str, message_id: str, from_s: float, until_s: float, *, receive_count: int = 1, deleted: bool = False
) -> Events:
    """Return a delivery whose window of 30 s is extended every 20 s."""
    about = {"message_id": message_id, "group": group, "consumer": "w"}
    out = [ev("received", from_s, NAME, receive_count=receive_count, **about)]
    for i in range(1, int((until_s - from_s) // 20) + 1):
        at = from_s + 20 * i
        out.append(ev("extended", at, NAME, invisible_until=ev("x", at + 30)["at"], **about))
    return [*out, ev("deleted", until_s, NAME, **about)] if deleted else out


def sent(group: str, message_id: str, at_s: float) -> dict[str, Any]:
    """Return a send to a group."""
    return ev("sent", at_s, NAME, message_id=message_id, group=group, sequence=str(round(at_s * 10)))


def finished(n: int, work_s: float) -> Events:
    """Return the only messages of `n` groups, worked on side by side from second 5."""
    out: Events = []
    for i in range(n):
        out += [sent(f"done{i}", f"d{i}", 1 + i / 10), *extended(f"done{i}", f"d{i}", 5, 5 + work_s, deleted=True)]
    return out


def flowing(until_s: int) -> Events:
    """Return a group that is received and settled throughout, three times in a hundred seconds."""
    out: Events = []
    for i, at in enumerate(range(10, until_s, 33)):
        out += [sent("B", f"b{i}", at), *extended("B", f"b{i}", at + 1, at + 3, deleted=True)]
    return out


BEHIND = [sent("A", "a0", 200), sent("A", "a1", 201)]


def stuck(events: Events, until_s: int) -> Judged:
    """Judge every ten seconds."""
    return judged(in_steps(sorted([QUEUE, *BEHIND, *events], key=lambda e: e["at"]), 10, until_s))


def only(found: Judged) -> Finding:
    """Return the one stuck group."""
    (finding,) = found.firing("GroupStuck")
    assert finding.key.group == "A"
    return finding


def loudness(found: Judged) -> list[tuple[str, str, bool]]:
    """Return every line about stuck groups: status, severity, whether it is announced."""
    return [(c.status, c.finding.severity, c.finding.announced) for c in found.changes if c.finding.key.signal == "GroupStuck"]


def test_a_head_in_work_for_no_longer_than_usual_is_shown_and_not_announced() -> None:
    """Jobs take 150 s here. The head has been processed for 100 s, its window extended throughout."""
    found = only(stuck([*finished(12, 150), *extended("A", "a0", 210, 310)], 310))
    assert (found.severity, found.announced, found.evidence["reason"]) == ("info", False, "held_head")
    assert found.evidence["usual_limit_s"] >= 300
    assert "w works on its head" in found.evidence["summary"]


def test_extensions_alone_show_that_a_head_is_in_work() -> None:
    """No receive of it is reported."""
    found = only(stuck([*finished(12, 150), *extended("A", "a0", 210, 310)[1:]], 310))
    assert (found.severity, found.announced, found.evidence["reason"]) == ("info", False, "held_head")
    assert found.evidence["summary"].endswith(
        "a consumer works on its head and extends its window, for 80 s so far, within this queue's usual limit of 5 min; "
        "1 message waits behind it."
    )


def test_a_consumer_that_has_just_taken_the_head_is_given_time() -> None:
    """Half of the limit, after a pause without consumers; the first extension shows when it took it."""
    taken = extended("A", "a0", 260, 400)[1:]
    assert stuck([*finished(12, 2), *taken], 300).firing("GroupStuck") == []
    assert only(stuck([*finished(12, 2), *taken], 320)).announced


@pytest.mark.simulation
def test_it_pages_once_the_work_takes_longer_than_usual() -> None:
    """At twice the slowest of this queue, with a line of its own, and once."""
    found = stuck([*finished(12, 150), *extended("A", "a0", 210, 900)], 900)
    assert only(found).severity == "critical"
    assert loudness(found) == [("firing", "info", False), ("firing", "critical", True)]
    paged = next(c for c in found.changes if c.finding.key.signal == "GroupStuck" and c.finding.announced)
    assert 300 <= (paged.at_ms - ev("x", 210)["at"]) / 1000 <= 450


@pytest.mark.simulation
@pytest.mark.parametrize("finished_before", [0, 9], ids=["nothing finished", "nine"])
def test_without_a_comparison_the_limit_is_that_of_any_work(finished_before: int) -> None:
    """Too few were finished to know what is usual: MessageHeldTooLong's quarter of an hour applies."""
    events = [*finished(finished_before, 150), *extended("A", "a0", 210, 1_300)]
    assert not only(stuck(events, 1_100)).announced
    assert only(stuck(events, 1_130)).announced


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([*finished(12, 2), *extended("A", "a0", 210, 310)], "held_head"),
        (
            [
                *finished(12, 150),
                ev("received", 210, NAME, message_id="a0", group="A", receive_count=1, invisible_until=ev("x", 900)["at"]),
            ],
            "held_head",
        ),
        ([*finished(12, 150), *extended("A", "a0", 210, 310, receive_count=2)], "held_head"),
        ([*finished(12, 150), *extended("A", "a0", 210, 310, receive_count=3)], "poison_head"),
        ([*finished(12, 150), *flowing(310)], "not_received"),
    ],
    ids=["work is short here", "never extended", "it failed once", "poison", "not received"],
)
def test_all_other_stuck_groups_page_as_soon_as_ever(events: Events, reason: str) -> None:
    """Nothing of the group was settled for a minute: a hung consumer among short work, a head that failed, a silent consumer."""
    found = stuck(events, 310)
    assert (only(found).severity, only(found).announced, only(found).evidence["reason"]) == ("critical", True, reason)
    assert [line for line in loudness(found) if line[0] == "firing"] == [("firing", "critical", True)]


def test_a_group_that_was_announced_stays_so() -> None:
    """A head paged about is not taken back because slow work elsewhere moves the limit."""
    slow = [e for i in range(30) for e in (sent(f"s{i}", f"s{i}", 202), *extended(f"s{i}", f"s{i}", 203, 330, deleted=True))]
    found = stuck([*finished(12, 2), *slow, *extended("A", "a0", 210, 400)], 400)
    assert only(found).announced
    assert [line for line in loudness(found) if line[0] == "firing"] == [("firing", "critical", True)]


@pytest.mark.simulation
def test_the_group_flows_again_and_the_signal_ends() -> None:
    """The head is deleted after its usual time: one line each, neither announced."""
    found = stuck([*finished(12, 150), *extended("A", "a0", 210, 350, deleted=True)], 360)
    assert loudness(found) == [("firing", "info", False), ("resolved", "info", False)]


def busy(from_s: int, until_s: int) -> Events:
    """Return a message of a group of its own every two seconds, received and deleted within one."""
    out: Events = []
    for at in range(from_s, until_s, 2):
        about = {"message_id": f"m{at}", "group": f"g{at}", "consumer": "w"}
        out.append(ev("sent", at, NAME, sequence="1", **{k: v for k, v in about.items() if k != "consumer"}))
        out += [ev("received", at + 0.2, NAME, receive_count=1, **about), ev("deleted", at + 0.7, NAME, **about)]
    return out


ABANDONED = [sent("C", "c0", 288), sent("C", "c1", 289), *extended("C", "c0", 290, 290)]


def changed(events: Events) -> list[str]:
    """Return how GroupStuck changed in eight minutes."""
    found = judged(in_steps(sorted([QUEUE, *ABANDONED, *events], key=lambda e: e["at"]), 10, 480))
    return [c.status for c in found.changes if c.finding.key.signal == "GroupStuck"]


def test_a_deploy_that_stops_the_consumers_leaves_no_stuck_group() -> None:
    """The head comes back 18 s after the last receive, and nobody is there to receive it until the consumers return."""
    returned = [*extended("C", "c0", 366, 367, receive_count=2, deleted=True), *extended("C", "c1", 368, 369, deleted=True)]
    assert changed([*busy(200, 304), *returned, *busy(365, 480)]) == []


@pytest.mark.simulation
def test_a_long_visibility_timeout_makes_no_group_stuck_in_a_queue_without_consumers() -> None:
    """Its limit of 20 min is reached when what consumers received in their last minute is older than the dense samples."""
    queue = ev("queue_state", 0, NAME, attributes={"kind": "fifo", "visibility_timeout_s": 600})
    waiting = [sent("Z", "z0", 250), sent("Z", "z1", 251)]
    found = judged(in_steps(sorted([queue, *waiting, *busy(0, 300)], key=lambda e: e["at"]), 10, 1_700))
    changes = [(c.finding.key.signal, c.status) for c in found.changes]
    assert changes == [("QueueStalled", "firing")]


@pytest.mark.simulation
def test_a_head_that_is_not_received_although_consumers_receive_others_is_stuck() -> None:
    """The same, with consumers that stay."""
    assert changed(busy(200, 480)) == ["firing"]


@pytest.mark.simulation
def test_a_head_came_back_when_its_own_window_ended_whatever_the_timeout_is_now() -> None:
    """The timeout rises to 100 s before the head comes back after 30 s. Others were received since, so consumers are there."""
    raised = ev("queue_state", 315, NAME, attributes={"visibility_timeout_s": 100})
    waiting = [sent("C", "c0", 100), sent("C", "c1", 101), *extended("C", "c0", 290, 290)]
    found = judged(in_steps(sorted([QUEUE, raised, *waiting, *busy(286, 480)], key=lambda e: e["at"]), 10, 480))
    (fired,) = (c for c in found.changes if c.finding.key.signal == "GroupStuck")
    assert fired.status == "firing"
    assert (fired.at_ms - ev("x", 320)["at"]) / 1000 <= 20


def test_groups_that_are_not_tried_any_more_hide_none_that_is() -> None:
    """Five heads failed once, and one again and again; a minute after the last receive only that one is announced."""
    events: Events = [QUEUE]
    for group in ("a", "b", "c", "d", "e", "poison"):
        events += [sent(group, f"{group}-{n}", n) for n in range(2)]
        tries = [10, 41, 72] if group == "poison" else [9]
        about = {"message_id": f"{group}-0", "group": group}
        events += [ev("received", at, NAME, receive_count=n, **about) for n, at in enumerate(tries, start=1)]
    few = Settings(messages_per_queue=3)
    found = judged(in_steps(sorted(events, key=lambda e: int(e["at"])), 10, 200), few)
    fired = {c.finding.key.group for c in found.changes if c.finding.key.signal == "GroupStuck" and c.at_ms > ev("x", 140)["at"]}
    view = found.snapshots[-1].queues[0]
    firing = {finding.key.group for finding in found.firing("GroupStuck")}
    assert (fired, "poison" in firing, view.stuck_groups) == (set(), True, len(firing))


def batch(times: list[float], **more: Any) -> Events:
    """Return receives of all three messages of group A at once, none of which is ever settled."""
    out: Events = [ev("sent", i / 10, NAME, message_id=f"a{i}", group="A", sequence=str(i)) for i in range(3)]
    for n, at in enumerate(times, start=1):
        about = {"group": "A", "consumer": "w", "receive_count": n, **more}
        out += [ev("received", at, NAME, message_id=f"a{i}", **about) for i in range(3)]
    return out


LONG = {"invisible_until": ev("x", 301)["at"]}


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        (batch([1], **LONG), []),
        ([*batch([1], **LONG), ev("sent", 100, NAME, message_id="a9", group="A", sequence="9")], [(100, "firing", 1)]),
        (
            [
                *batch([1], **LONG),
                ev("sent", 100, NAME, message_id="a9", group="A", sequence="9", visible_at=ev("x", 200)["at"]),
            ],
            [(200, "firing", 1)],
        ),
        ([*batch([1], **LONG), ev("released", 100, NAME, message_id="a2", group="A")], [(100, "firing", 1)]),
        (batch([1 + 30 * n for n in range(10)]), [(70, "firing", 2)]),
        (batch([1, 75, 110, 145, 180, 215, 250, 285]), [(60, "firing", 2)]),
    ],
    ids=[
        "all in flight",
        "another comes",
        "another is delayed until then",
        "one was given back",
        "they come back with a poison head",
        "they come back, and are received again after a while",
    ],
)
def test_messages_in_flight_with_their_head_do_not_wait_behind_it(events: Events, lines: list[tuple[int, str, int]]) -> None:
    """One receive takes several messages of a group. Once announced, the group stays stuck until it moves."""
    found = judged(in_steps(sorted([QUEUE, *events], key=lambda e: e["at"]), 10, 300))
    changes = [c for c in found.changes if c.finding.key.signal == "GroupStuck"]
    assert [((c.at_ms - ev("x", 0)["at"]) // 1000, c.status, c.finding.evidence["waiting_behind"]) for c in changes] == lines
    standing = found.snapshots[-1].queues[0].top_groups[0].standing_since_ms
    assert (standing is not None) == bool(lines)


def test_a_stuck_group_whose_other_messages_are_received_with_its_head_says_so() -> None:
    """Nothing waits behind the head then, but the group has not moved."""
    found = judged(in_steps(sorted([QUEUE, *batch([1, 75])], key=lambda e: e["at"]), 10, 80))
    (stuck,) = [finding for finding in found.snapshots[-1].firing if finding.key.signal == "GroupStuck"]
    assert (stuck.evidence["waiting_behind"], stuck.evidence["group_in_flight"]) == (0, 3)
    assert stuck.evidence["summary"].endswith("; 2 other messages of the group are not visible.")
