"""Events about queues, consumers and collectors, from the wire to the packets of the shards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from sources.events import Event
from sources.wire import decode_records, encode_arrow, encode_ndjson
from streaming.core.events.flags import COUNTED, PRIMARY
from streaming.core.events.packet import Packet, pack, unpack
from streaming.core.events.queue_events import KINDS, QueueEvents
from streaming.core.events.route import route
from streaming.core.settings import Settings
from tests.core.driving import T0, event


def packets(*events: dict[str, object], shards: int = 1) -> list[Packet]:
    """Return what each shard receives of these events, read back from the blobs sent to it."""
    lines = [json.dumps(one).encode() for one in events]
    return [unpack([pack(packet)]) for packet in route(decode_records(lines).events, Counter(), [], shards, Settings())]


def read(*events: dict[str, object]) -> QueueEvents:
    return packets(*events)[0].events.about_queues


def counts(found: QueueEvents) -> list[tuple[int, int, int] | None]:
    table = np.stack([found[name] for name in ("visible", "in_flight", "delayed")], axis=1).tolist()
    flags = found["flags"].tolist()
    return [(row[0], row[1], row[2]) if flag & COUNTED else None for row, flag in zip(table, flags, strict=True)]


@pytest.mark.parametrize("tag", ["", "x" * 5_000])
def test_attributes_that_repeat_are_read_like_the_first(tag: str) -> None:
    """Whether they are remembered or too long for that."""
    counted = {"visible": 3.0, "in_flight": 1, "paused": "no", "tag": tag}
    reported = (counted, counted, counted | {"in_flight": 2}, {"tag": tag})
    found = read(*(event("queue_state", 1_000 * i, attributes=one) for i, one in enumerate(reported)))
    assert counts(found) == [(3, 1, -1), (3, 1, -1), (3, 2, -1), None]
    text = json.dumps({"visible": [0, 3], "in_flight": [0, 1], "tag": [0, tag]}, separators=(",", ":"))
    assert [found.attributes[i] for i in found["attributes"].tolist()][:2] == [text, text]
    assert len(set(found["identity"].tolist())) == 4


WRITTEN: dict[str, Callable[[list[Event]], list[bytes]]] = {
    "lines": lambda events: [encode_ndjson(events)],
    "one object over several lines each": lambda events: [json.dumps(one, indent=1).encode() for one in events],
    "an array": lambda events: [json.dumps(events).encode()],
    "arrow": lambda events: [encode_arrow(events)],
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
def test_numbers_of_attributes_may_be_text_of_digits(written: Callable[[list[Event]], list[bytes]]) -> None:
    """GetQueueAttributes returns them so. It is the same event as with a number; other text is ignored."""
    numbers = {"visible": 12, "in_flight": 3, "delayed": 0, "visibility_timeout_s": 30, "oldest_sent_at": T0, "tag": "7"}
    texts = {name: str(value) for name, value in numbers.items()}
    others = {"visible": "-1", "in_flight": "3.0", "delayed": "", "visibility_timeout_s": "9" * 5_000, "oldest_sent_at": "٧"}
    reported = (numbers, texts, others | {"tag": "7"})
    events = [event("queue_state", 1_000, attributes=attributes) for attributes in reported]
    found = unpack([pack(route(decode_records(written(events)).events, Counter(), [], 1, Settings())[0])]).events.about_queues
    assert counts(found) == [(12, 3, 0), (12, 3, 0), None]
    read_texts = [found.attributes[i] for i in found["attributes"].tolist()]
    assert read_texts[0] == read_texts[1]
    assert json.loads(read_texts[2]) == {"tag": [0, "7"]}
    first, second, third = found["identity"].tolist()
    assert first == second != third


@pytest.mark.parametrize(("failed", "kept"), [(True, True), (2, 2), ("0", 0), ("2", 2), ("no", None), ([], None)])
def test_a_batch_failed_as_a_whole_or_in_part(failed: object, kept: object) -> None:
    """Text that is no number says neither."""
    found = read(event("batch", 1_000, batch_id="b", attributes={"failed": failed, "tag": 1}))
    assert json.loads(found.attributes[0]).get("failed", [0, None])[1] == kept


def test_an_event_has_the_same_identity_whatever_comes_with_it() -> None:
    """And however its attributes are written; every field makes a difference."""
    attributes = {"visible": 3, "in_flight": 1}
    plain = event("queue_state", 1_000, attributes=attributes)
    respelled = plain | {"attributes": {"visible": 3.0, "in_flight": 1, "paused": "no"}}
    others = [
        event("heartbeat", 1_000, consumer="a"),
        event("consumer_state", 1_000, consumer="a", attributes={"prefetch": 1}),
        event("batch", 1_000, batch_id="b", attributes={"size": 2, "failed": True}),
        event("sent", 1_000, "00000000-0000-4000-8000-000000000001", group="g"),
        event("purged", 1_000),
        *(event("outlived", 1_000, message_id=message_id) for message_id in ("m-1", "m-2")),
        plain | {"at": 1_001},
        plain | {"queue": "invoices"},
        plain | {"scope": "us-east-1"},
        plain | {"attributes": attributes | {"delayed": 0}},
    ]
    alone = int(read(plain)["identity"][0])
    among = read(plain, respelled, *others)["identity"].tolist()
    assert among[:2] == [alone, alone]
    assert len(set(among)) == len(among) - 1


def test_every_shard_learns_of_the_whole_queue_and_one_counts_the_event() -> None:
    """That a window was outlived concerns no other shard than the one that counts it; a heartbeat goes to the first shard."""
    kinds = ("queue_state", "purged", "batch", "consumer_state", "outlived", "heartbeat")
    assert kinds == KINDS
    events = [
        event(kind, 1_000 + i, queue=f"orders-{i}", message_id="m", consumer="a", batch_id=f"b{i}", attributes=counted)
        for i, kind in enumerate(kinds * 4)
        for counted in ({"visible": i, "in_flight": 0},)
    ]
    shards = packets(*events, shards=3)
    seen = [
        (KINDS[kind], int(at), shard, bool(flags & PRIMARY))
        for shard, packet in enumerate(shards)
        for kind, at, flags in zip(*(packet.events.about_queues[name].tolist() for name in ("kind", "at", "flags")), strict=True)
    ]
    for i, kind in enumerate(kinds * 4):
        copies = [(shard, primary) for of, at, shard, primary in seen if (of, at) == (kind, T0 + 1_000 + i)]
        assert sum(primary for _, primary in copies) == 1
        assert len(copies) == (1 if kind in ("outlived", "heartbeat") else 3)
        if kind == "heartbeat":
            assert copies == [(0, True)]
    assert len({shard for of, _, shard, primary in seen if primary and of == "queue_state"}) > 1


def test_packets_of_several_tasks_are_joined() -> None:
    """Names and attributes of one may come again in another, under another number."""
    first, second = (
        [event("queue_state", 1_000, queue=queue, attributes={"visible": n, "in_flight": 0}) for queue, n in reported]
        + [event("consumer_state", 1_000, queue=reported[0][0], consumer=consumer, attributes={"prefetch": 1})]
        for reported, consumer in (((("orders", 1), ("mail", 2)), "a"), ((("mail", 1), ("invoices", 3)), "b"))
    )
    blobs = [
        pack(route(decode_records([json.dumps(one).encode() for one in some]).events, Counter(), [], 1, Settings())[0])
        for some in (first, second)
    ]
    events = unpack(blobs).events
    found = events.about_queues
    named = [events.queues[i].queue for i in found["queue"].tolist()]
    assert named == ["orders", "mail", "orders", "mail", "invoices", "mail"]
    assert [one and one[0] for one in counts(found)] == [1, 2, None, 1, 3, None]
    assert found.names("consumer") == ["", "", "a", "", "", "b"]
    assert len(set(found.attributes)) == len(found.attributes)
