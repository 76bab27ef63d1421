"""Unreported moves are inferred from used-up receives and the broker's counts, for each message separately."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import QueueName, Settings
from tests.core.driving import T0, event, run_steps

EXAMPLES = int(os.environ.get("QUEUEWATCH_EXAMPLES", "60"))
END_S = 900
SECONDS = st.integers(1, END_S // 60).map(lambda n: 60 * n)
"""Few distinct times, so that counts coincide with the ends of windows."""
LIMITS = {"orders": 2, "mail": 3}
WINDOW_S = {"orders": 60, "mail": 120}
Wire = dict[str, Any]
Counts = list[tuple[int, int, int]]
"""Second, visible, in flight."""


def _policy(queue: str) -> Wire:
    about = {"visibility_timeout_s": WINDOW_S[queue], "max_receive_count": LIMITS[queue], "dead_letter_queue": f"{queue}-dead"}
    return event("queue_state", 0, queue, attributes=about)


@st.composite
def receives(draw: st.DrawFn, queue: str) -> dict[str, list[int]]:
    """Return when each message was received, in seconds."""
    out = {}
    for n in range(draw(st.integers(0, 6))):
        times = draw(st.lists(SECONDS, min_size=1, max_size=4, unique=True))
        out[f"{queue}-{n}"] = sorted(times)
    return out


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    """Return the broker's counts, at independent times."""
    times = sorted(draw(st.sets(SECONDS, max_size=6)))
    return [(at, draw(st.integers(0, 3)), draw(st.integers(0, 2))) for at in times]


def _shown(over: int, counted: Counts, there: Counts) -> bool:
    """The counts show a move by themselves: nothing visible after the window, and more dead letters than ever before."""
    rises = [at for n, (at, *depth) in enumerate(there) if n and sum(depth) > max(sum(c[1:]) for c in there[:n])]
    return any(at > over for at in rises) and any(at > over and visible == 0 for at, visible, _ in counted)


def _inferred(queue: str, times: list[int], counted: Counts, there: Counts) -> bool:
    """A move is inferred two visibility timeouts, at least a minute, after the window if the counts show a later receive.

    It is inferred before that if the counts of the dead-letter queue show it too.
    """
    over = times[-1] + WINDOW_S[queue]
    before, after = [c for c in counted if c[0] <= over], [c for c in counted if c[0] > over]
    waited = END_S - over >= max(2 * WINDOW_S[queue], 60) or (over < END_S and _shown(over, counted, there))
    if len(times) < LIMITS[queue] or not waited or not before or not after:
        return False
    for last in range(1, len(after) + 1):
        # One count that shows it is enough, whatever later counts say.
        visible = [c[1] for c in after[:last]]
        received = 0 in visible or any(later < earlier for earlier, later in pairwise(visible))
        if received and sum(after[last - 1][1:]) < sum(before[-1][1:]):
            return True
    return False


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_moves_are_inferred_message_by_message(data: st.DataObject) -> None:
    """Many messages of two queues together, with windows that end before, between and after the broker's counts."""
    of_queue = {queue: (data.draw(receives(queue)), data.draw(counts()), data.draw(counts())) for queue in LIMITS}
    events = [_policy(queue) for queue in LIMITS]
    for queue, (messages, *both) in of_queue.items():
        for message_id, times in messages.items():
            reported = enumerate(times, start=1)
            events += [event("received", 1_000 * at, queue, message_id=message_id, receive_count=n) for n, at in reported]
        for name, counted in zip((queue, f"{queue}-dead"), both, strict=True):
            for at, visible, in_flight in counted:
                state = {"visible": visible, "in_flight": in_flight, "delayed": 0}
                events.append(event("queue_state", 1_000 * at, name, attributes=state))
    shards = data.draw(st.sampled_from([1, 2]))
    merged = run_steps([(1_000 * END_S, events)], Settings(lateness_ms=1_000 * END_S), shards=shards)[-1]
    for queue, (messages, counted, there) in of_queue.items():
        expected = {m: times[-1] + WINDOW_S[queue] for m, times in messages.items() if _inferred(queue, times, counted, there)}
        arrived_s = {a.message_id: (a.at - T0) // 1_000 for a in merged.arrivals if a.queue[2] == f"{queue}-dead"}
        assert arrived_s == expected
        assert merged.queues[QueueName("aws_sqs", "", queue)].total("dead_lettered") == len(expected)


@pytest.mark.parametrize(
    ("followed_at", "last", "moved"),
    [(75_000, [], 1), (65_000, [], 0), (None, [], 0), (75_000, [("released", 66_000)], 0)],
    ids=["after its last window", "within it", "nothing followed", "it was given back"],
)
def test_a_later_message_of_its_group_shows_that_a_fifo_head_was_moved(
    followed_at: int | None, last: list[tuple[str, int]], moved: int
) -> None:
    """The counts of a queue that is nearly empty need not have fallen between two of them."""
    attributes = {"kind": "fifo", "visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "d.fifo"}
    counts = {"visible": 0, "in_flight": 0, "delayed": 0}
    events = [event("queue_state", at, "q.fifo", attributes=attributes | counts) for at in (0, 90_000)]
    for n, message_id in enumerate(("bad", "next")):
        about = {"message_id": message_id, "group": "g", "sequence": str(n)}
        events.append(event("sent", 1_000 + n, "q.fifo", **about))
        if message_id == "bad":
            events += [event("received", at, "q.fifo", receive_count=i + 1, **about) for i, at in enumerate((5_000, 40_000))]
            events += [event(what, at, "q.fifo", **about) for what, at in last]
        elif followed_at is not None:
            events.append(event("received", followed_at - 500, "q.fifo", receive_count=1, **about))
            events.append(event("deleted", followed_at, "q.fifo", **about))
    *_, merged = run_steps([(100_000, events), (150_000, [])], shards=2, restart=True)
    assert merged.queues[QueueName("aws_sqs", "", "q.fifo")].total("dead_lettered") == moved


def test_moves_of_many_queues_are_inferred_in_one_step() -> None:
    """However many queues it concerns, as when what all their consumers need is down: the call stack does not grow with them."""
    queues = [f"queue-{n}" for n in range(300)]
    events = []
    for queue in queues:
        about = {"visibility_timeout_s": 30, "max_receive_count": 1, "dead_letter_queue": f"{queue}-dead"}
        events += [
            event("queue_state", 0, queue, attributes={**about, "visible": 1, "in_flight": 0}),
            event("received", 1_000, queue, message_id="m", receive_count=1, invisible_until=T0 + 31_000),
            event("queue_state", 20_000, queue, attributes={"visible": 0, "in_flight": 1}),
            event("queue_state", 200_000, queue, attributes={"visible": 0, "in_flight": 0}),
        ]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        merged = run_steps([(200_000, events)])[-1]
    finally:
        sys.setrecursionlimit(limit)
    assert {arrival.queue.queue for arrival in merged.arrivals} == {f"{queue}-dead" for queue in queues}


def test_a_deletion_before_an_inferred_move_is_the_end() -> None:
    """It was within the last window, and is read after the move was inferred for the end of that."""
    about = {"visibility_timeout_s": 30, "max_receive_count": 1, "dead_letter_queue": "dead"}
    events = [
        event("queue_state", 0, attributes={**about, "visible": 1, "in_flight": 0}),
        event("sent", 0, message_id="m"),
        event("received", 1_000, message_id="m", receive_count=1),
        event("queue_state", 20_000, attributes={"visible": 0, "in_flight": 1}),
        event("queue_state", 200_000, attributes={"visible": 0, "in_flight": 0}),
    ]
    *_, merged = run_steps([(200_000, events), (201_000, [event("deleted", 21_000, message_id="m")])], restart=True)
    summary = merged.queues[QueueName("aws_sqs", "", "orders")]
    assert [summary.total(name) for name in ("dead_lettered", "processing_ms", "sojourn_ms")] == [1, 20_000, 21_000]


POLICY = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "dead"}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("suffix", ["", ".fifo"])
@pytest.mark.parametrize("reported", [True, False], ids=["its redrive is reported", "it is seen in its source queue"])
def test_a_message_that_left_its_dead_letter_queue_is_moved_there_again(suffix: str, shards: int, reported: bool) -> None:
    """It kept its id. Of an ordered queue too: an inferred dead letter is tracked in the shard of its source."""
    queue, dead = f"orders{suffix}", f"dead{suffix}"
    kind = {"kind": "fifo" if suffix else "standard", "visibility_timeout_s": 30}
    about = {"message_id": "m", "group": "g", "sequence": "5"} if suffix else {"message_id": "m"}
    policy = event("queue_state", 0, queue, attributes=kind | {"max_receive_count": 2, "dead_letter_queue": dead})
    back = [event("redriven", 200_000, dead, to_queue=queue, new_message_id="m", message_id="m")] if reported else []
    steps = [(0, [policy, event("sent", 0, queue, **about)]), *_used_up(queue, about, 0), (160_000, []), (200_000, back)]
    steps += [*_used_up(queue, about, 210_000, 0 if reported else 2), (370_000, [])]
    reports = run_steps(steps, Settings(now_is_event_time=True), shards=shards, restart=True)

    def tracked(at_ms: int, name: str) -> int:
        merged = next(merged for (now, _), merged in zip(steps, reports, strict=True) if now == at_ms)
        numbers = merged.queues[QueueName("aws_sqs", "", name)].numbers
        return sum(numbers[state] for state in ("visible", "in_flight", "delayed"))

    assert [(tracked(at, queue), tracked(at, dead)) for at in (160_000, 211_000, 370_000)] == [(0, 1), (1, 0), (0, 1)]
    assert reports[-1].queues[QueueName("aws_sqs", "", dead)].total("arrived") == 2


def test_a_look_at_an_inferred_dead_letter_is_no_message_without_a_send() -> None:
    """It is known how it came into the dead-letter queue, so it does not show that sends to that queue are unreported."""
    policy = event("queue_state", 0, "orders", attributes=POLICY)
    looked = event("received", 400_000, "dead", message_id="m", receive_count=4)
    steps = [(0, [policy, event("sent", 0, message_id="m")]), *_used_up("orders", {"message_id": "m"}, 0), (160_000, [])]
    *_, merged = run_steps([*steps, (400_000, [looked])], Settings(now_is_event_time=True), restart=True)
    summary = merged.queues[QueueName("aws_sqs", "", "dead")]
    assert (summary.total("arrived"), summary.total("touched"), summary.total("touched_unsent")) == (1, 1, 0)


def _used_up(queue: str, about: Wire, start_ms: int, before: int = 0) -> list[tuple[int, list[Wire]]]:
    """Return the steps of two receives after `before` others, and of the broker's counts, which show that the message is gone."""
    steps = [
        (start_ms + 1_000 + 31_000 * n, "received", {"receive_count": before + 1 + n, "consumer": "c", **about}) for n in range(2)
    ]
    for at, visible, in_flight in ((20_000, 0, 1), (50_000, 0, 1), (65_000, 1, 0), (95_000, 0, 0), (125_000, 0, 0)):
        counted = {"visible": visible, "in_flight": in_flight, "delayed": 0}
        steps.append((start_ms + at, "queue_state", {"attributes": counted}))
    return [(at, [event(type_, at, queue, **fields)]) for at, type_, fields in sorted(steps, key=lambda step: step[0])]


@pytest.mark.parametrize("skew_ms", [0, 2_000])
def test_a_dead_letter_that_was_deleted_there_does_not_come_again_because_of_a_clock(skew_ms: int) -> None:
    """The consumer of the source is ahead, so its last receive seems to be later than the deletion in the dead-letter queue."""
    policy = event(
        "queue_state",
        0,
        attributes={"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 3, "dead_letter_queue": "dead"},
    )
    lived = [
        event("received", at + skew_ms, message_id="m", receive_count=n) for n, at in ((1, 10_000), (2, 41_000), (3, 72_000))
    ]
    lived.append(event("released", 72_200 + skew_ms, message_id="m"))
    seen = event("received", 73_000, "dead", message_id="m", receive_count=4, from_queue="orders")
    steps = [
        (0, [policy, event("sent", 0, message_id="m")]),
        (75_000, [*lived, seen, event("deleted", 73_500, "dead", message_id="m")]),
    ]
    for at in (60_000, 120_000, 180_000, 240_000, 300_000):
        counts = {"visible": 0, "in_flight": int(at == 60_000), "delayed": 0}
        steps.append((max(at, 75_001), [event("queue_state", at, attributes=counts)]))
    *_, merged = run_steps(steps, Settings(now_is_event_time=True), shards=1)
    numbers = merged.queues[QueueName("aws_sqs", "", "dead")].numbers
    assert [numbers[state] for state in ("visible", "in_flight", "delayed")] == [0, 0, 0]
