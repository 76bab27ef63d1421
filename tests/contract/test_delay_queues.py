"""A queue may delay every message: SQS' `DelaySeconds`, which no send mentions and an ordered queue knows no other way to set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import ev, ms, replayed

pytestmark = pytest.mark.simulation

DELAY_S = 600


def counted(queue: str, until_s: int, delayed: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """The broker's counts every half minute: `delayed` has when each message is sent and when it becomes visible."""
    events = []
    for at in range(0, until_s, 30):
        waiting = sum(sent <= at < visible for sent, visible in delayed)
        attributes = {"visible": 0, "in_flight": 0, "delayed": waiting, "delay_s": DELAY_S, "visibility_timeout_s": 30}
        events.append(ev("queue_state", at, queue, attributes=attributes))
    return events


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
def test_messages_of_a_delay_queue_wait_without_a_signal(tmp_path: Path, queue: str) -> None:
    """They are delayed, not visible: nothing stalls, no group is stuck, and none of them is taken for settled."""
    sends = [30, 40, 50]
    about = [{"message_id": f"m{n}", "group": "g"} for n in range(len(sends))]
    events = counted(queue, 1_200, [(at, at + DELAY_S) for at in sends])
    for at, message in zip(sends, about, strict=True):
        events.append(ev("sent", at, queue, **message))
        events.append(ev("received", at + DELAY_S + 1, queue, receive_count=1, sent_at=ms(at), **message))
        events.append(ev("deleted", at + DELAY_S + 2, queue, **message))
    lines = replayed(sorted(events, key=lambda e: int(e["at"])), tmp_path, until_s=1_200, apart_s=5)
    assert lines.signals(status="firing") == []
    assert lines.metric("tracked_messages", queue=queue, state="delayed")[600] == 3
    assert lines.metric("tracked_messages", queue=queue, state="visible")[600] == 0
    assert 600 not in lines.metric("oldest_message_age_seconds", queue=queue, scope="visible")
    assert lines.metric("messages_reconciled_total", queue=queue)[1_200] == 0
    assert lines.metric("messages_deleted_total", queue=queue)[1_200] == 3


@pytest.mark.parametrize(("system", "attribute"), [("aws_sqs", "delay_s"), ("cloudflare_queues", "delivery_delay_s")])
def test_after_the_delay_nobody_receives(tmp_path: Path, system: str, attribute: str) -> None:
    """The stall begins when the first message becomes visible."""
    reported = [ev("queue_state", 0, attributes={attribute: DELAY_S}), ev("sent", 10, message_id="m")]
    events = [event | {"system": system} for event in reported]
    lines = replayed(events, tmp_path, every="10s", until_s=1_010)
    assert lines.times("QueueStalled", "firing") == [10 + DELAY_S + 300]
    assert lines.metric("oldest_message_age_seconds", queue="q", scope="all")[1_000] == 990


def test_a_send_s_own_delay_comes_first(tmp_path: Path) -> None:
    """Also a delay of zero, which says that the message is visible at once; the order of the reports makes no difference."""
    own = [("at-once", 0), ("soon", 60), ("as-the-queue", None)]
    sends = [ev("sent", 10, message_id=name, visible_at=None if s is None else ms(10 + s)) for name, s in own]
    state = ev("queue_state", 0, attributes={"delay_s": DELAY_S})
    for events in ([state, *sends], [*sends, state]):
        lines = replayed(events, tmp_path, every="10s", until_s=630, apart_s=10)
        visible = lines.metric("queue_messages", queue="q", state="visible")
        assert (visible[20], visible[80], visible[620]) == (1, 2, 3)
