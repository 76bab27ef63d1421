"""The number of unsettled messages is limited: the oldest are tracked, the rest is counted, and the queue is known in part."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import Settings
from streaming.core.tracking import admission
from tests.core.driving import T0, event, run_steps
from tests.core.reference import Model, Wire
from tests.core.test_against_reference import DEAD_LETTER_QUEUES, MAX_RECEIVES, VISIBILITY_MS, expected, lifecycles, said

LIMIT = 5
LIMITED = Settings(max_messages_per_shard=LIMIT)


def _sends(first_ms: int, ids: range) -> list[Wire]:
    return [event("sent", first_ms + n, message_id=f"m{n}") for n in ids]


def test_the_oldest_messages_are_tracked_and_the_rest_is_counted() -> None:
    """Whatever their order in the step; and a message that is tracked stays tracked."""
    merged = run_steps([(10, _sends(0, range(9))[::-1]), (20, _sends(10, range(9, 12)))], LIMITED)[-1]
    (summary,) = merged.queues.values()
    assert (summary.numbers["visible"], summary.total("sent")) == (LIMIT, LIMIT)
    assert merged.invalid_total == {"too_many_messages": 7}
    assert merged.events_total["accepted"] == LIMIT
    assert summary.left_out_at == T0 + 21
    assert summary.oldest[0] == T0


def test_a_message_that_ended_makes_room() -> None:
    """Its row stays for late events, and counts no longer."""
    deletions = [event("deleted", 20, message_id=f"m{n}", consumer="w") for n in range(LIMIT)]
    steps = [(10, _sends(0, range(LIMIT))), (30, deletions), (40, _sends(30, range(5, 9)))]
    merged = run_steps(steps, LIMITED)[-1]
    (summary,) = merged.queues.values()
    assert (summary.numbers["visible"], summary.total("sent"), summary.left_out_at) == (4, 9, 0)
    assert merged.invalid_total == {}


def test_events_of_messages_that_are_tracked_go_on_when_it_is_full() -> None:
    """A receive, and a repetition of the send."""
    steps = [(10, _sends(0, range(9))), (20, [*_sends(0, range(1)), event("received", 15, message_id="m1", receive_count=1)])]
    merged = run_steps(steps, LIMITED)[-1]
    (summary,) = merged.queues.values()
    assert (summary.numbers["visible"], summary.numbers["in_flight"]) == (LIMIT - 1, 1)
    assert merged.events_total["duplicate"] == 1


def test_ids_that_are_no_uuids_are_limited_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what Arrow holds in one array every step would fail. UUIDs, stored as numbers, are tracked all the same."""
    monkeypatch.setattr(admission, "MOST_ID_BYTES", 550)
    sends = [event("sent", n, message_id=f"{n:0100}") for n in range(9)]
    uuids = [event("sent", 20 + n, message_id=f"00000000-0000-4000-8000-{n:012}") for n in range(20)]
    steps = [(10, sends[::-1]), (30, [event("sent", 15, message_id="x" * 100), *uuids, *sends[:2]])]
    first, last = (merged.queues.values() for merged in run_steps(steps, restart=True))
    ((before,), (after,)) = first, last
    assert (before.numbers["visible"], before.oldest[0], before.left_out_at) == (5, T0, T0 + 8)
    assert (after.numbers["visible"], after.left_out_at) == (25, T0 + 15)


def test_an_id_is_forgotten_with_its_message_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_ID_BYTES", 550)
    steps: list[tuple[int, list[Wire]]] = []
    for n in range(40):
        about = {"message_id": f"{n:0100}"}
        steps.append((60_000 * n + 10, [event("sent", 60_000 * n, **about), event("deleted", 60_000 * n + 5, **about)]))
    merged = run_steps(steps, Settings(lateness_ms=60_000), restart=True)[-1]
    (summary,) = merged.queues.values()
    assert (summary.total("sent"), summary.total("deleted"), merged.invalid_total) == (40, 40, {})


@pytest.mark.simulation
@settings(max_examples=15)
@given(data=st.data())
def test_what_is_tracked_is_exact_while_others_are_left_out(data: st.DataObject) -> None:
    """However events are mixed and cut into steps: a flood of younger messages in another queue changes nothing."""
    events = data.draw(lifecycles())
    messages = {(e["queue"], e.get("message_id")) for e in events}
    flood = [event("sent", 500_000 + n, "flood", message_id=f"f{n}") for n in range(data.draw(st.integers(1, 30)))]
    cut = data.draw(st.integers(0, len(flood)))
    # A move makes a message of another queue.
    limited = Settings(max_messages_per_shard=3 * len(messages))
    steps = [(0, events), (500_000, flood[:cut]), (500_100, [*flood[cut:], *flood])]
    merged = run_steps(steps, limited, restart=data.draw(st.booleans()))[-1]
    model = Model(VISIBILITY_MS, MAX_RECEIVES, DEAD_LETTER_QUEUES)
    model.tell(events)
    for queue, words in said(merged).items():
        if queue != "flood":
            assert words == expected(model, queue, T0 + 500_100), queue
    live = sum(summary.numbers["visible"] + summary.numbers["in_flight"] for summary in merged.queues.values())
    assert live <= limited.max_messages_per_shard
    assert sum(merged.events_total.values()) == sum(len(step) for _, step in steps)


@pytest.mark.parametrize("shards", [1, 3])
def test_each_shard_has_its_own_limit(shards: int) -> None:
    merged = run_steps([(10, _sends(0, range(200)))], LIMITED, shards=shards)[-1]
    (summary,) = merged.queues.values()
    assert summary.numbers["visible"] == LIMIT * shards
    assert merged.invalid_total == {"too_many_messages": 200 - LIMIT * shards}
