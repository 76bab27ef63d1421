"""Consumers that report what they delete and not what they receive: what is in flight seems to wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0, run_steps
from tests.judge.driving import SETTINGS, Judged, in_steps, judged, judged_reports

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
UNTIL_S = 900
WORK_S = 200


def messages(*, dies_s: int = UNTIL_S) -> Events:
    """Return a message every half minute, received at once, unseen, and deleted at the end of its work, until consumers die."""
    sent = [ev("sent", at, message_id=f"m{at}") for at in range(0, UNTIL_S, 30)]
    return sent + [ev("deleted", at + WORK_S, message_id=f"m{at}") for at in range(0, dies_s - WORK_S, 30)]


def counts(*, dies_s: int = UNTIL_S) -> Events:
    """Return what the broker counts, just after each send. The windows of dead consumers end a minute later."""
    out = []
    for at in range(2, UNTIL_S, 30):
        alive = at - at % 30
        in_work = len([sent for sent in range(0, alive + 1, 30) if sent < dies_s and at < sent + WORK_S])
        waiting = len([sent for sent in range(0, alive + 1, 30) if sent + WORK_S >= dies_s])
        visible, in_flight = (0, in_work) if at < dies_s + 60 else (waiting, 0)
        out.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0}))
    return out


def seen(*events: Events) -> Judged:
    """Judged every ten seconds."""
    return judged(in_steps(sorted((e for some in events for e in some), key=lambda e: e["at"]), 10, UNTIL_S - 10))


def test_what_is_in_flight_is_not_said_to_wait() -> None:
    """No message is visible at any count: none has an age as a visible one, and the queue does not lag."""
    found = seen(messages(), counts())
    queues = [snapshot.queues[0] for snapshot in found.snapshots if snapshot.at_ms >= T0 + 60_000]
    assert {queue.status for queue in queues} == {"ok"}
    assert not any("visible" in queue.oldest_ms for queue in queues)
    assert queues[-1].oldest_ms["all"] == T0 + 720_000
    assert not [change for change in found.changes_seen() if change[1] in ("QueueLagging", "QueueStalled")]


def test_consumers_that_die_are_noticed_by_the_counts() -> None:
    """The backlog grows and nothing is in flight: the queue has stopped, and what waits has an age."""
    found = seen(messages(dies_s=400), counts(dies_s=400))
    assert found.firing("QueueStalled")
    queue = found.snapshots[-1].queues[0]
    assert queue.status == "stopped"
    assert queue.oldest_ms["visible"] >= T0 + 210_000


def test_a_backlog_that_only_began_does_not_lag() -> None:
    """Every two seconds a message, 40 s old when it is deleted: the counts grow at first, the ages do not."""
    events = [ev("sent", at, message_id=f"m{at}") for at in range(0, UNTIL_S, 2)]
    events += [ev("deleted", at + 40, message_id=f"m{at}") for at in range(0, UNTIL_S - 40, 2)]
    for at in range(15, UNTIL_S, 30):
        unsettled, in_flight = min(at // 2 + 1, 20), 4 if at > 32 else 0
        events.append(ev("queue_state", at, attributes={"visible": unsettled - in_flight, "in_flight": in_flight, "delayed": 0}))
    found = seen(events)
    assert {snapshot.queues[0].status for snapshot in found.snapshots if snapshot.at_ms >= T0 + 60_000} == {"ok"}


def deletions(n: int, *, sends: bool = False, receives: int = 0) -> Events:
    """Return so many messages, one every four seconds, and the first `receives` of their receives."""
    out = [ev("deleted", 4 * i + 2, message_id=f"m{i}") for i in range(n)]
    out += [ev("received", 4 * i + 1, message_id=f"m{i}", receive_count=1) for i in range(receives)]
    return out + [ev("sent", 4 * i, message_id=f"m{i}") for i in range(n if sends else 0)]


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize(
    ("n", "receives", "known"), [(4, 0, True), (5, 0, False), (5, 1, True)], ids=["a few", "none", "one received"]
)
def test_without_receives_their_numbers_are_left_out(n: int, receives: int, known: bool, sends: bool) -> None:
    """Zeros would say that nobody receives; a few deletions may be of messages that were received before."""
    queue = (
        judged(in_steps(sorted(deletions(n, sends=sends, receives=receives), key=lambda e: e["at"]), 10, 30))
        .snapshots[-1]
        .queues[0]
    )
    assert queue.totals["deleted"] == n
    assert ("received" in queue.totals, queue.receive_count_max is not None, queue.poison_messages is not None) == (known,) * 3
    assert ("receives of q are not seen" in queue.basis_reason, "receives" in queue.next_step) == (not known,) * 2


def test_receive_counts_of_other_events_are_shown() -> None:
    """A consumer that gives a message back says how often it was delivered."""
    events = [*deletions(5), ev("released", 25, message_id="back", receive_count=3)]
    queue = judged(in_steps(events, 10, 30)).snapshots[-1].queues[0]
    assert (queue.receive_count_max, queue.poison_messages, "received" in queue.totals) == (3, 1, False)


def test_sends_that_nobody_received_yet_have_zeros() -> None:
    """There, they are right."""
    queue = judged(in_steps([ev("sent", at, message_id=f"m{at}") for at in range(20)], 10, 30)).snapshots[-1].queues[0]
    assert (queue.receive_count_max, queue.poison_messages, queue.totals["received"]) == (0, 0, 0)


def test_a_stall_without_receives_says_what_is_known() -> None:
    """Deletions were reported until the stall, and receives never: not that nobody received anything."""
    polls = [(0, 1)] * 11 + [(5 * n, 0) for n in range(1, 19)]
    events = deletions(75)
    for i, (visible, in_flight) in enumerate(polls):
        events.append(ev("queue_state", 30 * i, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0}))
    (stalled,) = seen(events).firing("QueueStalled")
    assert stalled.evidence["summary"].endswith("visible: nothing was finished for 9 min; receives are not reported.")


def busy(wait_s: int, system: str = "aws_sqs") -> Events:
    """Return two messages a second that wait for so long and are worked on for 20 s; receives are not reported."""
    end_s = wait_s + 20
    events = [ev("sent", at / 2, message_id=f"m{at}") for at in range(2 * UNTIL_S)]
    events += [ev("deleted", at / 2 + end_s, message_id=f"m{at}") for at in range(2 * (UNTIL_S - end_s))]
    for at in range(15, UNTIL_S, 30):
        visible, in_flight = min(2 * at + 1, 2 * wait_s), min(max(2 * (at - wait_s) + 1, 0), 40)
        events.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0}))
    return [{**event, "system": system} for event in events]


@pytest.mark.parametrize(
    ("wait_s", "system", "least_s"),
    [(10, "aws_sqs", None), (300, "aws_sqs", 90), (300, "activemq", 240)],
    ids=["a late count may be of any of them", "a backlog", "counts without an error"],
)
def test_the_oldest_message_is_not_the_oldest_visible_one_where_consumers_work(
    wait_s: int, system: str, least_s: int | None
) -> None:
    """It is in flight. The visible ones are at least those sent last, as many as are left of those that the broker counted."""
    found = seen(busy(wait_s, system))
    queues = [(s.at_ms, s.queues[0]) for s in found.snapshots if s.at_ms >= T0 + 450_000]
    assert {queue.basis for _, queue in queues} == {"messages"}
    assert all(at - queue.oldest_ms["all"] == 1000 * wait_s + 19_500 for at, queue in queues)
    ages = [at - queue.oldest_ms["visible"] for at, queue in queues if "visible" in queue.oldest_ms]
    assert len(ages) == (len(queues) if least_s is not None else 0)
    assert not ages or (least_s is not None and 1000 * least_s <= min(ages) and max(ages) <= 1000 * wait_s)
    assert not any("visible" in queue.exact_ages for _, queue in queues)


def test_without_counts_the_age_of_a_visible_message_is_not_exact() -> None:
    """The oldest message is in flight, and nothing shows it."""
    found = seen([e for e in busy(10) if e["type"] != "queue_state"])
    queue = found.snapshots[-1].queues[0]
    assert "all" in queue.exact_ages
    assert "visible" not in queue.exact_ages


def test_the_age_of_a_visible_message_follows_the_samples_where_nothing_happens() -> None:
    """Which of the last sends a count leaves visible depends on when samples were taken, and on the time since the count."""
    events = [ev("sent", at, message_id=name) for at, name in ((237, "a"), (257, "b"), (277, "c"), (297, "d"), (314, "e"))]
    events += [ev("deleted", at, message_id=name) for at, name in ((249, "a"), (290, "c"), (312, "d"))]
    for at, visible, in_flight in ((0, 0, 0), (240, 0, 2), (300, 1, 2)):
        events.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0}))
    events = [{**event, "system": "activemq"} for event in sorted(events, key=lambda e: e["at"])]
    tracked = run_steps(in_steps(events, 15, 345), SETTINGS)
    seldom, always = judged_reports(tracked), judged_reports(tracked, every_queue=True)
    ages = [[(s.at_ms - T0, q.oldest_ms.get("visible")) for s in found.snapshots for q in s.queues] for found in (seldom, always)]
    assert ages[0] == ages[1]
