"""The ids of messages are written once, and every state finds those of its rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.columns import UnreadableBlob, pack_columns, unpack_columns
from streaming.core.state.id_segments import IN_HEAD_SHARE, MOST_SEGMENTS
from streaming.core.state.rows import keys_of
from streaming.core.state.state import Packed, ShardState
from tests.core.driving import event, run_steps

OF_SEGMENT: Final = 600
"""The most bytes of a segment beside its rows."""
DICE = np.random.default_rng(7)


def with_rows(n: int) -> ShardState:
    """Return a state with rows of one queue."""
    states: list[ShardState] = []
    run_steps([(0, [event("sent", 0, message_id="first")])], states=states)
    grow(states[0], n - 1)
    return states[0]


def grow(state: ShardState, n: int) -> None:
    """Add rows with random ids."""
    hi, lo = DICE.integers(1, 1 << 63, size=(2, n), dtype=np.uint64)
    keys = keys_of(hi, lo, state.queues.hashes[np.zeros(n, dtype=np.int64)], np.zeros(n, dtype=np.uint32))
    order = np.argsort(keys)
    at, _ = state.rows.find(keys[order])
    state.rows.insert(at, keys[order])
    here = at + np.arange(n)
    state.rows.put("hi", here, hi[order])
    state.rows.put("lo", here, lo[order])


def ids(state: ShardState) -> list[Any]:
    """Return key and id of every row."""
    return list(zip(*(column.tolist() for column in (state.rows.key, state.rows["hi"], state.rows["lo"])), strict=True))


def stored(packed: Packed) -> int:
    """Return how many bytes the segments take."""
    return sum(len(body) for body in packed.segments.values())


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 1)), max_size=30))
def test_every_state_has_the_ids_of_its_rows(steps: list[tuple[int, float]]) -> None:
    """Whatever is added and removed between; and the segments hold little else."""
    state = with_rows(40)
    for added, removed in steps:
        state.rows.keep(DICE.random(len(state.rows)) >= removed)
        grow(state, added)
        before = ids(state)
        packed = state.pack(ids_apart_from=1)
        state = ShardState.unpack(packed)
        assert ids(state) == before
        assert len(packed.segments) <= MOST_SEGMENTS
        assert stored(packed) <= 20 * 1.5 * len(before) + OF_SEGMENT * len(packed.segments)


def test_ids_that_stay_are_not_written_again() -> None:
    """A step that changes few rows leaves the segments as they are."""
    first = with_rows(10_000).pack(ids_apart_from=1)
    state = ShardState.unpack(first)
    grow(state, 10_000 // IN_HEAD_SHARE - 10)
    second = state.pack(ids_apart_from=1)
    assert second.segments.keys() == first.segments.keys()
    assert len(second.head) < len(first.head) + 10_000
    state = ShardState.unpack(second)
    grow(state, 10_000 // IN_HEAD_SHARE)
    assert len(state.pack(ids_apart_from=1).segments.keys() - first.segments.keys()) == 1


def test_a_segment_of_which_much_is_gone_is_written_again_without_that() -> None:
    state = ShardState.unpack(with_rows(9_000).pack(ids_apart_from=1))
    first = state.pack(ids_apart_from=1)
    state.rows.keep(np.arange(9_000) % 3 > 0)
    assert state.pack(ids_apart_from=1).segments.keys() == first.segments.keys()
    state.rows.keep(np.arange(6_000) > 0)
    again = state.pack(ids_apart_from=1)
    assert [segment.rows for segment in ShardState.unpack(again).id_segments] == [5_999]
    assert stored(again) < stored(first) * 0.7


def test_what_never_changes_is_not_in_the_head() -> None:
    """The head of a thousand waiting messages hardly depends on when they were sent; and a time that does change is not lost."""
    state = with_rows(10_000)
    state.rows.put("sent", np.arange(10_000), DICE.integers(1, 1 << 40, 10_000))
    state = ShardState.unpack(state.pack(ids_apart_from=1))
    packed = state.pack(ids_apart_from=1)
    assert len(packed.head) < 10_000
    sent = state.rows["sent"].copy()
    sent[[5, 77, 9_999]] = 0, 12_345, 1 << 41
    state.rows.put("sent", np.arange(10_000), sent)
    state = ShardState.unpack(state.pack(ids_apart_from=1))
    assert state.rows["sent"].tolist() == sent.tolist()
    state.rows.keep(np.arange(10_000) % 2 == 1)
    again = state.pack(ids_apart_from=1)
    assert again.segments.keys() != packed.segments.keys()
    assert ShardState.unpack(again).rows["sent"].tolist() == sent[1::2].tolist()


def test_segments_of_version_8_are_read_and_stay_while_most_of_them_is_needed() -> None:
    """They have the ids alone, and the head beside them has queues and times for all rows."""
    state = with_rows(9_000)
    state.rows.put("sent", np.arange(9_000), DICE.integers(1, 1 << 40, 9_000))
    sent, before = state.rows["sent"].copy(), ids(state)
    columns, header = unpack_columns(state.pack().head)
    body = columns.pop("hi").tobytes() + columns.pop("lo").tobytes()
    columns |= {"id.segment": np.ones(9_000, dtype=np.uint8), "id.alive": np.packbits(np.ones(9_000, dtype=bool))}
    columns |= dict.fromkeys(("hi", "lo"), np.zeros(0, dtype=np.uint64))
    old = pack_columns(columns, header | {"version": 8, "ids": [["old", 9_000]], "consumer_states": []}, compress=True)
    state = ShardState.unpack(Packed(old, {"old": body}))
    assert (ids(state), state.rows["sent"].tolist()) == (before, sent.tolist())
    grow(state, 1_000)
    before, sent = ids(state), state.rows["sent"].copy()
    both = state.pack(ids_apart_from=1)
    assert bytes(both.segments["old"]) == body
    state = ShardState.unpack(both)
    assert (ids(state), state.rows["sent"].tolist()) == (before, sent.tolist())
    state.rows.keep(np.arange(10_000) % 2 == 1)
    new = state.pack(ids_apart_from=1)
    assert "old" not in new.segments
    assert ids(ShardState.unpack(new)) == before[1::2]


def test_a_small_state_has_its_ids_in_the_head() -> None:
    state = with_rows(100)
    assert state.pack(ids_apart_from=101).segments == {}
    assert state.pack().segments == {}
    assert ids(ShardState.unpack(state.pack(ids_apart_from=101))) == ids(state)


def test_a_state_whose_ids_are_no_longer_stored_apart_has_them_all() -> None:
    """Its checkpoint has moved to where a state is stored as a whole, or few messages are left."""
    state = ShardState.unpack(with_rows(100).pack(ids_apart_from=1))
    assert ids(ShardState.unpack(state.pack())) == ids(state)


@pytest.mark.parametrize("damage", ["segment gone", "segment cut", "fewer rows alive", "unknown segment"])
def test_parts_that_do_not_fit_together_are_refused(damage: str) -> None:
    packed = with_rows(100).pack(ids_apart_from=1)
    (name,) = packed.segments
    columns, header = unpack_columns(packed.head)
    segments = dict(packed.segments)
    if damage == "segment gone":
        del segments[name]
    elif damage == "segment cut":
        segments[name] = segments[name][:-16]
    elif damage == "fewer rows alive":
        columns["id.alive"][3] = 0
    else:
        columns["id.segment"][:8] = 2
        columns["id.alive"][0] = 0
    with pytest.raises(UnreadableBlob):
        ShardState.unpack(Packed(pack_columns(columns, header, compress=True), segments))
