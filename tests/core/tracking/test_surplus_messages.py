"""Of messages that were only ever sent, no more are kept than the broker counts."""

from __future__ import annotations

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps

NAME = QueueName("aws_sqs", "", "orders")


def _left(messages: int, visible: int, shards: int) -> tuple[int, int]:
    """Send `messages` in a minute, count `visible` every minute; return how many messages are left and how many were dropped."""
    sent = [event("sent", n * 60_000 // messages, message_id=f"m-{n}") for n in range(messages)]
    counts = [
        (minute * 60_000, [event("queue_state", minute * 60_000, attributes={"visible": visible, "in_flight": 0, "delayed": 0})])
        for minute in range(2, 9)
    ]
    summary = run_steps([(60_000, sent), *counts], shards=shards)[-1].queues[NAME]
    return summary.numbers["visible"], summary.total("reconciled")


@pytest.mark.parametrize(("messages", "visible"), [(3_000, 2_000), (3_000, 100), (200, 0), (16, 0)])
def test_the_number_of_shards_does_not_change_what_is_dropped(messages: int, visible: int) -> None:
    """A shard holds a part of the queue, the counts are of the whole queue."""
    in_one = _left(messages, visible, 1)
    assert {shards: _left(messages, visible, shards) for shards in (2, 4, 8, 16)} == dict.fromkeys((2, 4, 8, 16), in_one)
    if messages > 16:
        assert in_one[1] > 0


@pytest.mark.parametrize("restart", [False, True])
def test_sends_that_are_read_after_the_counts_are_dropped_too(restart: bool) -> None:
    """As from a topic that is far behind: in a step of its own, without another count."""
    counts = [
        (minute * 60_000, [event("queue_state", minute * 60_000, attributes={"visible": 5, "in_flight": 0, "delayed": 0})])
        for minute in range(2, 9)
    ]
    sent = [event("sent", n, message_id=f"m-{n}") for n in range(3_000)]
    before, after = run_steps([*counts, (481_000, sent)], restart=restart)[-2:]
    assert before.queues[NAME].total("reconciled") == 0
    assert after.queues[NAME].total("reconciled") > 2_500
    assert after.queues[NAME].numbers["visible"] + after.queues[NAME].total("reconciled") == 3_000


def test_a_message_that_a_consumer_still_has_is_not_dropped() -> None:
    """Its receive is not reported, but that its window was extended."""
    sent = [event("sent", n, message_id=f"m-{n}") for n in range(3_000)]
    held = event("extended", 100_000, message_id="m-0", invisible_until=event("x", 600_000)["at"])
    counts = [
        (minute * 60_000, [event("queue_state", minute * 60_000, attributes={"visible": 4, "in_flight": 1, "delayed": 0})])
        for minute in range(2, 9)
    ]
    summary = run_steps([(60_000, sent), (100_000, [held]), *counts])[-1].queues[NAME]
    assert summary.total("reconciled") > 2_500
    assert [listed.view.message_id for listed in summary.messages["oldest"]] == ["m-0"]
    assert summary.numbers["in_flight"] == 1


def test_a_message_that_was_extended_long_ago_is_dropped_like_others() -> None:
    """The end of its delivery is reported no more than its receive."""
    sent = [event("sent", n, message_id=f"m-{n}") for n in range(3_000)]
    had = [event("extended", 10_000, message_id=one["message_id"], invisible_until=event("x", 40_000)["at"]) for one in sent]
    counts = [
        (minute * 60_000, [event("queue_state", minute * 60_000, attributes={"visible": 5, "in_flight": 0, "delayed": 0})])
        for minute in range(2, 9)
    ]
    summary = run_steps([(60_000, sent + had), *counts])[-1].queues[NAME]
    assert summary.total("reconciled") > 2_500
