"""Of messages dispatched to a consumer at once, it works on the one that was sent first, whatever the messages' ids are."""

from __future__ import annotations

from itertools import permutations

import pytest

from streaming.core.settings import QueueName
from tests.core.driving import event, run_steps


def named(sent_at_ms: dict[str, int], sequences: dict[str, int], shards: int) -> str:
    """Return which of the messages, all dispatched at 9 s, is named as the oldest that the consumer holds."""
    events = []
    for message_id, at in sent_at_ms.items():
        about = {"message_id": message_id} | ({"sequence": str(sequences[message_id])} if sequences else {})
        events.append(event("sent", at, **about))
        events.append(event("received", 9_000, consumer="c", invisible_until=event("x", 900_000)["at"], **about))
    merged = run_steps([(10_000, events)], shards=shards, restart=True)[-1]
    (held,) = merged.queues[QueueName("aws_sqs", "", "orders")].consumers
    assert (held.messages, held.since) == (len(sent_at_ms), event("x", 9_000)["at"])
    return held.message_id


@pytest.mark.parametrize("shards", [1, 5])
def test_the_message_sent_first_is_named(shards: int) -> None:
    """Each of the ids is that of the first message once."""
    ids = [f"m{n}" for n in range(6)]
    for first in ids:
        assert named({one: 1_000 if one == first else 2_000 for one in ids}, {}, shards) == first


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 5])
def test_of_messages_sent_at_once_the_first_by_its_position_is_named(shards: int) -> None:
    """A batch of sends has one time."""
    for order in permutations(range(1, 5)):
        positions = {f"m{n}": position for n, position in enumerate(order)}
        assert named(dict.fromkeys(positions, 1_000), positions, shards) == f"m{order.index(1)}"


@pytest.mark.slow
def test_the_name_does_not_depend_on_the_number_of_shards() -> None:
    """Where nothing tells which one was first."""
    for n in range(10):
        ids = [f"{n}-{i}" for i in range(5)]
        assert len({named(dict.fromkeys(ids, 1_000), {}, shards) for shards in (1, 2, 5)}) == 1


@pytest.mark.parametrize("shards", [1, 5])
def test_messages_of_a_failed_batch_are_held_by_nobody(shards: int) -> None:
    """A Lambda function that raised has ended, although its messages come back only when their windows end."""
    until = event("x", 900_000)["at"]
    events = [
        event("received", 9_000, message_id=f"m{n}", consumer="fn", receive_count=1, batch_id=batch, invisible_until=until)
        for n, batch in enumerate(["b1", "b1", "b2", None])
    ]
    events.append(event("batch", 9_500, consumer="fn", batch_id="b1", attributes={"size": 2, "failed": 2}))
    merged = run_steps([(10_000, events)], shards=shards, restart=True)[-1]
    (held,) = merged.queues[QueueName("aws_sqs", "", "orders")].consumers
    assert held.messages == 2
    assert held.message_id not in ("m0", "m1")


def test_a_message_that_a_failed_batch_returned_is_held_again_once_it_is_received_again() -> None:
    """Its next delivery belongs to another batch."""
    about = {"message_id": "m", "consumer": "fn"}
    failed = event("batch", 9_500, consumer="fn", batch_id="b1", attributes={"size": 1, "failed": 1})
    events = [event("received", 9_000, receive_count=1, batch_id="b1", **about), failed]
    events.append(event("received", 60_000, receive_count=2, batch_id="b2", **about))
    before, after = run_steps([(10_000, events[:2]), (61_000, events[2:])], restart=True)
    name = QueueName("aws_sqs", "", "orders")
    assert not before.queues[name].consumers
    (held,) = after.queues[name].consumers
    assert held.since == event("x", 60_000)["at"]
