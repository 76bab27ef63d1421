"""Groups and consumers of which too little is reported: an age or a hold that may be over is not published."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.judge.metrics import samples
from streaming.judge.snapshot import QueueView, Snapshot
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

QUEUE = "q.fifo"
GROUPS = 5
UNTIL_S = 600
Events = list[dict[str, Any]]


def about(n: int) -> dict[str, Any]:
    return {"message_id": f"m{n}", "group": f"g{n % GROUPS}", "sequence": str(n + 1)}


def sends() -> Events:
    """Return a message every two seconds; each is worked on for three seconds from its send on."""
    return [ev("sent", 2 * n, QUEUE, **about(n)) for n in range(UNTIL_S // 2)]


def deliveries(*, deletions: bool, share: int = 1) -> Events:
    """Return the receives, and the deletions where reported, of every `share`-th message."""
    out = []
    for n in range(0, UNTIL_S // 2, share):
        out.append(ev("received", 2 * n + 0.1, QUEUE, receive_count=1, consumer=f"c{n % 2}", sent_at=T0 + 2000 * n, **about(n)))
        if deletions:
            out.append(ev("deleted", 2 * n + 3.1, QUEUE, consumer=f"c{n % 2}", **about(n)))
    return out


def counts() -> Events:
    attributes = {"visible": 0, "in_flight": 2, "delayed": 0, "visibility_timeout_s": 30}
    return [ev("queue_state", 15 + 30 * n, QUEUE, attributes=attributes) for n in range(UNTIL_S // 30)]


def last_of(*events: Events) -> Snapshot:
    """Return the last result, judged every ten seconds."""
    return judged(in_steps(sorted((e for some in events for e in some), key=lambda e: e["at"]), 10, UNTIL_S)).snapshots[-1]


def names(snapshot: Snapshot) -> set[str]:
    """Return the names of the metrics of the queue."""
    found = samples(snapshot, snapshot.at_ms)
    return {sample.name.removeprefix("queuewatch_") for sample in found if sample.labels.get("queue") == QUEUE}


GROUP_METRICS = {"group_oldest_message_age_seconds", "groups", "stuck_groups"}


def test_groups_of_which_only_sends_are_reported_have_no_ages() -> None:
    """Consumers that do not report have nearly all of these messages finished."""
    snapshot = last_of(sends(), counts())
    queue: QueueView = snapshot.queues[0]
    assert queue.basis == "producers"
    assert not names(snapshot) & GROUP_METRICS
    assert (queue.top_groups, queue.other_groups, queue.other_groups_oldest_ms) == ((), 0, None)


def test_groups_of_which_everything_is_reported_have_ages() -> None:
    snapshot = last_of(sends(), deliveries(deletions=True), counts())
    assert snapshot.queues[0].basis == "messages"
    assert names(snapshot) >= GROUP_METRICS
    assert names(snapshot) >= {"consumer_oldest_held_seconds"}


def test_groups_of_which_only_sends_are_missing_are_known_while_they_are_in_flight() -> None:
    """Which of them have a backlog is not known."""
    snapshot = last_of(deliveries(deletions=True), counts())
    queue = snapshot.queues[0]
    assert queue.basis == "consumers"
    assert set(queue.groups) == {"in_flight"}
    assert {group.oldest_sent_at_ms for group in queue.top_groups} == {T0 + 1000 * (UNTIL_S - 2)}


def test_of_groups_that_are_received_in_part_those_in_flight_have_ages() -> None:
    """Two of five messages in a row are received by a consumer that does not report: its groups seem to wait."""
    some = [e for e in deliveries(deletions=True) if int(e["message_id"][1:]) % GROUPS not in (1, 2)]
    snapshot = last_of(sends(), some, counts())
    queue = snapshot.queues[0]
    assert queue.basis == "partial"
    assert queue.groups == {}
    assert {group.group for group in queue.top_groups} <= {"g3", "g4"}
    assert all(snapshot.at_ms - group.oldest_sent_at_ms < 5_000 for group in queue.top_groups)


def test_groups_that_consumers_may_have_finished_unseen_have_no_ages() -> None:
    """No sends are reported, and one of two consumers: what it gave back is received and finished by the other one."""
    some = deliveries(deletions=True, share=2)
    back = [e | {"type": "released"} if e["type"] == "deleted" and e["message_id"] == "m200" else e for e in some]
    more = [{**e, "attributes": {**e["attributes"], "in_flight": 8}} for e in counts()]
    queue = last_of(back, more).queues[0]
    assert queue.basis == "consumers"
    assert queue.groups == {}
    assert "g0" not in {group.group for group in queue.top_groups}


def test_nobody_holds_what_is_never_reported_deleted() -> None:
    """Every message seems to be held until its window ends, and to wait from then on."""
    snapshot = last_of(deliveries(deletions=False), counts())
    queue = snapshot.queues[0]
    assert queue.basis == "consumers"
    assert not names(snapshot) & {*GROUP_METRICS, "consumer_oldest_held_seconds"}
    assert (queue.consumers, queue.other_consumers) == ((), 0)


def test_more_holders_than_are_listed_are_not_named_as_others_where_holds_are_not_known() -> None:
    events = [{**e, "consumer": f"c{n % 20}"} for n, e in enumerate(deliveries(deletions=False))]
    steps = in_steps(sorted([*events, *counts()], key=lambda e: e["at"]), 10, UNTIL_S)
    queue = judged(steps, Settings(now_is_event_time=True, top_k=2)).snapshots[-1].queues[0]
    assert (queue.consumers, queue.other_consumers, queue.other_consumers_held_since_ms) == ((), 0, None)
