"""Another number of shards gives the same totals and reports, and later events still find their messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sources.wire import decode_records
from streaming.core.events.route import route
from streaming.core.maintenance.placement import keep_latest_rows, out_of_place
from streaming.core.maintenance.reshard import AT_HOME, NAME_COUNTERS, NAME_TIMES, SHARED, reshard
from streaming.core.reporting.merge import Merged, merge
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.core.state import tombstones
from streaming.core.state.consumer_states import ConsumerState
from streaming.core.state.interner import Interner
from streaming.core.state.queues import QueueRecord
from streaming.core.state.state import ShardState
from streaming.core.state_reports import differences, report_of
from streaming.core.track import track
from tests.core.driving import T0, event
from tests.core.state.test_upgrades import stored_states
from tests.streaming.checkpoints import NAMES, unpacked


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("name", NAMES)
def test_the_report_is_the_same_for_another_number_of_shards(name: str, shards: int, tmp_path: Path) -> None:
    """The same holds after resharding back."""
    states = stored_states(unpacked(name, tmp_path))
    before = report_of(states, Settings())
    there = reshard([ShardState.unpack(state.pack()) for state in states], shards, Settings())
    assert len(there) == shards
    assert differences(before, report_of(there, Settings())) == []
    assert sum(state.messages for state in there) == sum(state.messages for state in states)
    back = reshard(there, 2, Settings())
    assert differences(before, report_of(back, Settings())) == []
    back[0].queues[0].totals[0] += 1
    assert len(differences(before, report_of(back, Settings()))) == 1


def go_on(states: list[ShardState], now_ms: int, events: Sequence[dict[str, Any]], settings: Settings | None = None) -> Merged:
    """Run one step of all shards."""
    settings = settings or Settings()
    decoded = decode_records([json.dumps(event).encode() for event in events])
    reports = []
    for i, packet in enumerate(route(decoded.events, Counter(), [], len(states), settings)):
        states[i], report = track(states[i], packet, T0 + now_ms, settings)
        reports.append(report)
    return merge(reports, settings)


def test_later_events_find_what_they_are_about() -> None:
    """Settlements, late and repeated events, a failed batch: the same as with this number of shards from the start."""
    first = [
        *(event("sent", n, message_id=f"m{n}", sent_at=T0 + n) for n in range(40)),
        *(event("sent", n, "p.fifo", message_id=f"f{n}", group=f"g{n % 3}", sequence=str(n)) for n in range(20)),
        *(
            event("received", 1_000 + n, message_id=f"m{n}", receive_count=1, consumer=f"c{n % 4}", batch_id="b")
            for n in range(20)
        ),
        *(event("received", 1_500 + n, "p.fifo", message_id=f"f{n}", consumer="c9") for n in range(5)),
        *(event("deleted", 2_000 + n, message_id=f"m{n}") for n in range(10)),
    ]
    second = [
        *(event("deleted", 3_000 + n, message_id=f"m{n}") for n in range(5, 15)),
        *(event("received", 1_000 + n, message_id=f"m{n}", receive_count=1, consumer=f"c{n % 4}") for n in range(20)),
        *(event("received", 1_500 + n, "p.fifo", message_id=f"f{n}", consumer="c9") for n in range(5)),
        *(event("deleted", 3_500, "p.fifo", message_id=f"f{n}") for n in range(3)),
        event("batch", 2_900, batch_id="b", attributes={"size": 10, "failed": True, "retried": 10}),
        event("dead_lettered", 3_600, message_id="m30", to_queue="dlq"),
    ]
    kept = [ShardState.empty() for _ in range(2)]
    go_on(kept, 2_500, first)
    changed = reshard([ShardState.unpack(state.pack()) for state in kept], 5, Settings())
    expected, found = go_on(kept, 4_000, second), go_on(changed, 4_000, second)
    assert differences(expected, found) == []
    assert found.events_total["duplicate"] == 5 + 20 + 5


def test_a_shard_gets_the_ids_of_its_own_messages() -> None:
    """All of them together may be more than Arrow holds in one array."""
    states = [ShardState.empty() for _ in range(3)]
    go_on(states, 1_000, [event("sent", n, message_id=f"m{n}") for n in range(40)])
    made = reshard(states, 2, Settings())
    assert [len(state.texts) for state in made] == [len(state.rows) for state in made]
    assert sorted(id_ for state in made for id_ in state.message_ids(np.arange(len(state.rows)))) == sorted(
        f"m{n}" for n in range(40)
    )


def test_compacted_messages_are_kept_where_the_lateness_of_the_job_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `judge.lateness_s: 3600`, a late receive of half an hour ago does not bring a deleted message back."""
    monkeypatch.setattr(tombstones, "FEWEST_TOMBSTONES", 10)
    job, states = Settings(lateness_ms=3_600_000), [ShardState.empty()]
    deleted = [event(of, n, message_id=f"m{n}") for n in range(40) for of in ("received", "deleted")]
    go_on(states, 1_000, deleted, job)
    go_on(states, 1_800_000, [event("sent", 1_800_000, message_id="live")], job)
    assert [segment.rows for segment in states[0].segments] == [40]
    made = reshard(states, 2, Settings())
    assert sum(state.messages for state in made) == 41
    found = go_on(made, 1_801_000, [event("received", 500, message_id=f"m{n}") for n in range(40)], job)
    assert [summary.numbers["in_flight"] for summary in found.queues.values()] == [0]


def test_every_field_of_a_queue_has_a_rule() -> None:
    """A new field must be declared as known to every shard, or only to the home shard."""
    assert {field.name for field in fields(QueueRecord)} == {"name", *SHARED, *AT_HOME}
    assert not set(SHARED) & set(AT_HOME)


def test_every_field_of_a_name_has_a_rule() -> None:
    """A group's or consumer's columns are counted, or latest."""
    columns = {field.name for field in fields(Interner) if not field.name.startswith("_")}
    assert columns == {"queue", "texts", *NAME_COUNTERS, *chain(*NAME_TIMES)}


def test_what_is_latest_of_a_consumer_and_a_group_is_kept() -> None:
    """Not the sum over the shards, which would be a time decades ahead; and of a group's position not the time of another."""
    states = [ShardState.empty() for _ in range(3)]
    failed = [event("received", n, message_id=f"m{n}", consumer="c", receive_count=1) for n in range(9)]
    positions = [event("received", n, "p.fifo", message_id=f"{n}", group="g", sequence=f"1888222222222222222{n}") for n in (7, 8)]
    go_on(states, 40_000, [*failed, *positions])
    made = reshard(states, 2, Settings())
    assert [int(state.consumers.failed_at.max()) for state in made] == [T0 + 8] * 2
    assert sum(int(state.consumers.failed.sum()) for state in made) == 9
    reached = [(int(g.reached_hi[0]), int(g.reached_lo[0]), int(g.reached_at[0])) for g in (state.groups for state in made)]
    assert reached == [(18, 882_222_222_222_222_228, T0 + 8)] * 2


def test_every_shard_knows_what_the_broker_said_about_a_consumer() -> None:
    """Its messages may be in any of them, and what it seems to hold is compared with the broker's count in each."""
    attributes = {"connected": True, "prefetch": 9, "dispatched": 5}
    states = [ShardState.empty() for _ in range(2)]
    go_on(states, 2_000, [event("consumer_state", 1_000, consumer="c", attributes=attributes)])
    made = reshard(states, 3, Settings())
    assert [[one for _, one in state.consumer_states.items()] for state in made] == [
        [ConsumerState(T0 + 1_000, attributes, T0 + 1_000)]
    ] * 3


BY_NAME = Settings()
ORDERED = Settings(rules=(QueueRule("chg", ordered=True), QueueRule("p.fifo", ordered=False)))
CHG, FIFO = QueueName("aws_sqs", "", "chg"), QueueName("aws_sqs", "", "p.fifo")


def sent_and_received(queue: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of 20 messages in 4 groups; 8 of them were received, and one was received twice."""
    return [
        *(event("sent", n, queue, message_id=f"m{n}", group=f"g{n % 4}", **fields) for n in range(20)),
        *(
            event("received", 100 + n, queue, message_id=f"m{n}", group=f"g{n % 4}", receive_count=1, consumer="c", **fields)
            for n in range(8)
        ),
        event("received", 60_000, queue, message_id="m0", group="g0", receive_count=2, consumer="d", **fields),
    ]


def deleted(queue: str) -> list[dict[str, Any]]:
    """Return the events that end all of them."""
    return [event("deleted", 61_000, queue, message_id=f"m{n}", group=f"g{n % 4}") for n in range(20)]


@pytest.mark.parametrize(("old", "new"), [(BY_NAME, ORDERED), (ORDERED, BY_NAME)], ids=["newly ordered", "no longer ordered"])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_the_messages_of_a_queue_move_to_where_their_next_events_go(old: Settings, new: Settings, shards: int) -> None:
    """A pattern in the configuration decides it. What is compared is the same, and all messages are found afterwards."""
    states = [ShardState.empty() for _ in range(2)]
    go_on(states, 60_500, [*sent_and_received("chg"), *sent_and_received("p.fifo")], old)
    assert out_of_place(dict(enumerate(states)), 2, old) == set()
    moved = out_of_place(dict(enumerate(states)), 2, new)
    assert moved == {CHG, FIFO}
    before = report_of(states, new, unordered=moved)
    made = reshard(states, shards, new)
    assert out_of_place(dict(enumerate(made)), shards, new) == set()
    assert differences(before, report_of(made, new, unordered=moved), moved=moved) == []
    waiting = report_of(made, new).queues
    for name, ordered in ((CHG, new is ORDERED), (FIFO, new is BY_NAME)):
        assert waiting[name].numbers["visible"] + waiting[name].numbers["in_flight"] == 20
        facts = waiting[name].ordered_facts
        assert (facts.groups if facts else None) == (4 if ordered else None)
    after = go_on(made, 62_000, [*deleted("chg"), *deleted("p.fifo")], new)
    assert [sum(after.queues[name].numbers[kind] for kind in ("visible", "in_flight")) for name in (CHG, FIFO)] == [0, 0]


def test_messages_that_were_in_two_shards_are_counted_once() -> None:
    """A queue that became ordered while queuewatch ran leaves them. The row with the latest event is the right one."""
    states = [ShardState.empty() for _ in range(2)]
    go_on(states, 60_500, sent_and_received("chg"), BY_NAME)
    phantoms = go_on(states, 61_500, deleted("chg"), ORDERED)
    assert phantoms.queues[CHG].numbers["visible"] > 0
    by_index = dict(enumerate(states))
    moved = out_of_place(by_index, 2, ORDERED)
    keep_latest_rows(states)
    before = report_of(states, ORDERED, unordered=moved)
    made = reshard(states, 2, ORDERED)
    found = report_of(made, ORDERED)
    assert differences(before, report_of(made, ORDERED, unordered=moved), moved=moved) == []
    assert [found.queues[CHG].numbers[kind] for kind in ("visible", "in_flight")] == [0, 0]


def test_what_shards_list_of_a_queue_that_moves_is_not_compared() -> None:
    """Each lists so many groups; the dead letters of the queue lose the deliveries in it, which are in another shard."""
    few = replace(ORDERED, groups_per_report=2, consumers_per_report=1)
    states = [ShardState.empty() for _ in range(2)]
    reported = event("queue_state", 0, "chg", attributes={"dead_letter_queue": "dlq", "max_receive_count": 1})
    dead = [event("dead_lettered", 60_100 + n, "chg", message_id=f"m{n}", to_queue="dlq") for n in range(8)]
    go_on(states, 60_500, [reported, *sent_and_received("chg"), *dead], replace(few, rules=()))
    moved = out_of_place(dict(enumerate(states)), 2, few)
    assert moved == {CHG}
    before = report_of(states, few, unordered=moved)
    made = reshard(states, 2, few)
    assert differences(before, report_of(made, few, unordered=moved), moved=moved) == []
    made[0].rows.keep(made[0].rows.key == 0)
    made[1].rows.keep(made[1].rows.key == 0)
    assert differences(before, report_of(made, few, unordered=moved), moved=moved) != []


def test_a_queue_whose_events_become_ordered_is_put_together() -> None:
    """Its events say so, but those of before were routed by id."""
    states = [ShardState.empty() for _ in range(2)]
    go_on(states, 60_500, sent_and_received("chg"))
    go_on(states, 60_600, [event("sent", 60_550, "chg", message_id="m99", group="g9", ordered=True)])
    moved = out_of_place(dict(enumerate(states)), 2, BY_NAME)
    assert moved == {CHG}
    before = report_of(states, BY_NAME, unordered=moved)
    made = reshard(states, 2, BY_NAME)
    assert differences(before, report_of(made, BY_NAME, unordered=moved), moved=moved) == []
    facts = report_of(made, BY_NAME).queues[CHG].ordered_facts
    assert facts is not None
    assert facts.groups == 5
