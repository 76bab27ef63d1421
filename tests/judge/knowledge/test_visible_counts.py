"""Counts without the messages in flight, as Cloudflare's, contradict what is tracked as well."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
UNTIL_S = 900
CF = "cloudflare_queues"


def messages(
    *, received: bool = True, lost_every: int = 0, dies_s: int = UNTIL_S, silent_s: int = UNTIL_S, system: str = CF
) -> Events:
    """Return a message every two seconds, received and deleted within three.

    `lost_every`: of so many, one is worked on by a consumer that does not report. `dies_s`: from then on none is received.
    `silent_s`: from then on they are, but it is not reported.
    """
    out = []
    for i, at in enumerate(range(1, UNTIL_S, 2)):
        out.append(ev("sent", at, message_id=f"m{i}", system=system))
        if received and at < min(dies_s, silent_s) and not (lost_every and i % lost_every == 0):
            out.append(ev("received", at + 1, message_id=f"m{i}", receive_count=1, consumer="worker", system=system))
            out.append(ev("deleted", at + 3, message_id=f"m{i}", system=system))
    return out


def polls(*, dies_s: int = UNTIL_S, factor: int = 1, every_s: int = 30, late_s: int = 0, system: str = CF) -> Events:
    """Return the backlog at every poll, two messages while consumers work. `factor`: of so many, one is in `messages`."""
    backlog = [2 * factor + max(at - late_s - dies_s, 0) // 2 for at in range(0, UNTIL_S, every_s)]
    return [ev("queue_state", every_s * i, attributes={"visible": n}, system=system) for i, n in enumerate(backlog)]


def seen(*events: Events) -> Judged:
    """Judged every ten seconds."""
    return judged(in_steps(sorted(chain(*events), key=lambda e: e["at"]), 10, UNTIL_S))


def bases(found: Judged) -> list[str]:
    """Return the basis of every step after the first minute."""
    return [snapshot.queues[0].basis for snapshot in found.snapshots if snapshot.at_ms >= T0 + 60_000]


BROKERS = pytest.mark.parametrize("system", [CF, "aws_sqs"])


@BROKERS
def test_sends_alone_are_not_taken_for_everything(system: str) -> None:
    """Consumers that do not report keep up with the producers: two messages are counted, hundreds are tracked.

    The two may as well stand there since the consumers died, so the status is unknown.
    """
    found = seen(messages(received=False, system=system), polls(system=system))
    assert set(bases(found)) == {"producers"}
    queue = found.snapshots[-1].queues[0]
    assert (queue.status, queue.visible, dict(queue.oldest_ms)) == ("unknown", 2, {})
    assert found.firing("QueueStalled") == []


@BROKERS
@pytest.mark.parametrize(
    ("lost_every", "silent_s"), [(2, UNTIL_S), (0, 300)], ids=["one of two consumers", "no consumer any more"]
)
def test_messages_that_are_tracked_but_not_counted_left_unseen(system: str, lost_every: int, silent_s: int) -> None:
    """The queue is healthy, and what seems to wait in it was received by consumers that do not report."""
    found = seen(messages(lost_every=lost_every, silent_s=silent_s, system=system), polls(system=system))
    assert set(bases(found)[-40:]) == {"partial"}
    assert found.snapshots[-1].queues[0].visible == 2
    assert [change for change in found.changes_seen() if change[1] in ("QueueStalled", "QueueLagging")] == []


def test_messages_that_are_counted_but_not_tracked_were_sent_unseen() -> None:
    """Of ten messages one is reported, on both sides."""
    found = seen(messages(), polls(factor=10))
    assert set(bases(found)) == {"partial"}
    assert found.snapshots[-1].queues[0].visible == 20


@BROKERS
@pytest.mark.parametrize(("every_s", "late_s"), [(5, 0), (30, 60), (60, 0)])
def test_complete_telemetry_stays_complete(system: str, every_s: int, late_s: int) -> None:
    """Consumers die after five minutes. Polls are frequent or not, and their counts may be a minute old."""
    dies_s = 300
    found = seen(messages(dies_s=dies_s, system=system), polls(dies_s=dies_s, every_s=every_s, late_s=late_s, system=system))
    assert set(bases(found)) == {"messages"}
    queue = found.snapshots[-1].queues[0]
    assert queue.oldest_ms
    assert queue.exact_ages >= set(queue.oldest_ms)
    assert [signal for _, signal, _, _ in found.changes_seen() if signal == "QueueStalled"] == ["QueueStalled"]


def test_sends_that_all_still_wait_are_everything() -> None:
    """Nobody receives from a new queue, and its backlog is what was sent: so nobody does without a report either."""
    found = seen(messages(received=False), polls(dies_s=-4))
    assert bases(found)[-1] == "messages"
    assert found.firing("QueueStalled")


def test_a_single_count_that_is_wrong_contradicts_nothing() -> None:
    """One poll of a standing backlog shows a tenth of it."""
    wrong = polls(dies_s=300)
    wrong[24]["attributes"]["visible"] //= 10
    assert set(bases(seen(messages(dies_s=300), wrong))) == {"messages"}
    wrong[25]["attributes"]["visible"] //= 10
    assert bases(seen(messages(dies_s=300), wrong))[-1] == "partial"


def test_a_message_in_work_for_longer_than_the_assumed_window_need_not_be_counted() -> None:
    """No visibility timeout is reported. Of messages held for 100 s, those held for longer than 30 s seem to wait."""
    events = []
    for i, at in enumerate(range(1, UNTIL_S, 5)):
        events += [ev("sent", at, message_id=f"m{i}"), ev("received", at + 1, message_id=f"m{i}", receive_count=1, consumer="w")]
        events.append(ev("deleted", at + 100, message_id=f"m{i}"))
    events = [event for event in events if event["at"] <= T0 + 1000 * UNTIL_S]
    assert set(bases(seen(events, [ev("queue_state", at, attributes={"visible": 0}) for at in range(0, UNTIL_S, 30)]))) == {
        "messages"
    }


def test_a_backlog_counted_after_a_count_of_zero_is_not_added_to_what_is_tracked() -> None:
    """The first poll shows an empty queue, with nothing in flight, and the next ones a growing backlog without it."""
    counted = polls(dies_s=30)
    counted[0]["attributes"] = {"visible": 0, "in_flight": 0}
    found = seen(messages(dies_s=30), counted)
    snapshots = [snapshot.queues[0] for snapshot in found.snapshots if snapshot.at_ms >= T0 + 60_000]
    assert [queue.visible for queue in snapshots] == [queue.tracked_states["visible"] for queue in snapshots]


def test_a_backlog_that_stands_is_not_ok_where_only_sends_are_reported() -> None:
    """The backlog grows slower than the sends, and never falls: consumers may be gone."""
    standing = [ev("queue_state", at, attributes={"visible": 2 + at // 30}, system=CF) for at in range(0, UNTIL_S, 30)]
    queue = seen(messages(received=False), standing).snapshots[-1].queues[0]
    assert (queue.basis, queue.status) == ("producers", "unknown")
