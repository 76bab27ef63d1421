"""The ordered queues of a shard are reported together as a table; each has in it what it would have alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.reporting.report import OrderedQueueReport
from streaming.core.settings import QueueName, Settings
from tests.core.driving import event, run_steps

Wire = dict[str, Any]
SETTINGS = replace(Settings(), top_k=2, messages_per_queue=3)
QUEUES = ("a.fifo", "b.fifo", "c.fifo")
AT_MS, STEP_MS = 400_000, 100_000


@st.composite
def traffic(draw: st.DrawFn) -> list[Wire]:
    """Return events of several queues in turn, so that the numbers of their groups are mixed; many are sent at the same time."""
    events: list[Wire] = []
    for n in range(draw(st.integers(1, 20))):
        queue, group = draw(st.sampled_from(QUEUES)), draw(st.sampled_from("zyxw"))
        about = {"queue": queue, "message_id": f"m{n}", "group": group}
        sent_ms = draw(st.sampled_from((0, 0, 1_000, 110_000)))
        events.append(event("sent", sent_ms, **about))
        receives = draw(st.integers(0, 4))
        for count in range(1, receives + 1):
            events.append(event("received", sent_ms + 40_000 * count, **about, receive_count=count, consumer="c"))
        if receives and draw(st.booleans()):
            events.append(event("deleted", sent_ms + 40_000 * receives + 1_000, **about))
    for queue, attributes in (
        ("b.fifo", {"look_ahead": 2}),
        ("c.fifo", {"visibility_timeout_s": 300}),
    ):
        if draw(st.booleans()):
            events.append(event("queue_state", 500, queue=queue, attributes=attributes))
    return events


def reported(events: list[Wire]) -> dict[str, OrderedQueueReport | None]:
    """Return what one shard reports of each queue after several steps: each numbers the groups that are new in it."""
    start = event("sent", 0)["at"]
    steps = [(until, [e for e in events if until - STEP_MS < e["at"] - start <= until]) for until in range(0, AT_MS + 1, STEP_MS)]
    merged = run_steps(steps, SETTINGS)[-1]
    return {name.queue: summary.ordered_facts for name, summary in merged.queues.items()}


@pytest.mark.slow
@given(traffic())
@settings(max_examples=30)
def test_a_queue_is_reported_as_if_it_were_alone(events: list[Wire]) -> None:
    together = reported(events)
    for queue in {one["queue"] for one in events}:
        assert together[queue] == reported([one for one in events if one["queue"] == queue])[queue]


def sent(queue: str, group: str, at_ms: int, n: int) -> Wire:
    return event("sent", at_ms, queue=queue, message_id=f"{queue}{group}{n}", group=group)


def test_the_oldest_groups_are_listed_and_of_equal_ones_the_first_by_name() -> None:
    """And it is said when the oldest of the others was sent."""
    groups = {
        queue: report and ([group.name for group in report.oldest], report.others_oldest_at)
        for queue, report in reported(
            [
                *(sent("a.fifo", group, 0, n) for n, group in enumerate("zyx")),
                *(sent("b.fifo", group, at_ms, 0) for group, at_ms in (("z", 2_000), ("y", 1_000), ("x", 3_000))),
                sent("c.fifo", "z", 0, 0),
                event("sent", 0, queue="d.fifo", message_id="without a group"),
            ]
        ).items()
    }
    first = event("sent", 0)["at"]
    assert groups == {
        "a.fifo": (["x", "y"], first),
        "b.fifo": (["y", "z"], first + 3_000),
        "c.fifo": (["z"], None),
        "d.fifo": None,
    }


def test_the_groups_stuck_longest_are_listed_and_all_are_counted() -> None:
    """Of those stuck for equally long the first by name. A consumer has just received the head of one, which may work."""
    events = [sent("a.fifo", group, 0 if group != "v" else 1_000, n) for group in "zyxwv" for n in range(2)]
    for group in "zyxv":
        for receives, at_ms in enumerate((10_000, 60_000, 110_000), 1):
            head = {"queue": "a.fifo", "message_id": f"a.fifo{group}0", "group": group}
            events.append(event("received", at_ms, **head, receive_count=receives))
    events.append(event("received", 390_000, queue="a.fifo", message_id="a.fifow0", group="w", receive_count=1))
    facts = reported(events)["a.fifo"]
    assert facts is not None
    assert [(stuck.group.name, stuck.reason, stuck.waiting, stuck.may_begin) for stuck in facts.stuck] == [
        ("x", "poison_head", 1, True),
        ("y", "poison_head", 1, True),
        ("z", "poison_head", 1, True),
    ]
    assert facts.stuck_groups == 4
    assert [len(stuck.group.head.attempts) for stuck in facts.stuck if stuck.group.head] == [3, 3, 3]


@pytest.mark.parametrize(
    "more",
    [sent("a.fifo", "new", 1_000, 0), event("received", 50_000, queue="a.fifo", message_id="a.fifog0", group="g")],
    ids=["another group", "in flight"],
)
def test_a_queue_has_another_digest_when_its_groups_change_and_the_others_have_not(more: Wire) -> None:
    """Only queues whose digest changed are judged again."""
    events = [sent(queue, "g", 0, 0) for queue in QUEUES]
    before, after = (
        run_steps([(60_000, some)], SETTINGS, shards=2)[-1].queues.group_digest.tolist() for some in (events, [*events, more])
    )
    names = sorted(QueueName("aws_sqs", "", queue) for queue in QUEUES)
    assert [name.queue for name, one, other in zip(names, before, after, strict=True) if one != other] == ["a.fifo"]
    assert np.count_nonzero(before) == len(QUEUES)


def test_a_saturated_look_ahead_does_not_change_the_digests_of_other_queues() -> None:
    """All of them would be judged again."""
    few = event("queue_state", 0, queue="a.fifo", attributes={"look_ahead": 1})
    events = [few, *(sent(queue, "g", 0, 0) for queue in QUEUES), sent("a.fifo", "h", 1_000, 0)]
    held = event("received", 50_000, queue="a.fifo", message_id="a.fifog0", group="g")
    before, after = (run_steps([(60_000, some)], SETTINGS)[-1].queues for some in (events, [*events, held]))
    facts = [queue.ordered_facts for queue in after.values()]
    assert [bool(one and one.look_ahead) for one in facts] == [True, False, False]
    assert (before.group_digest == after.group_digest).tolist() == [False, True, True]
