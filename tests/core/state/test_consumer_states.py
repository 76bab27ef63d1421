"""What the broker reported of consumers, as columns, is what a dictionary of states would be."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.columns import pack_columns, unpack_columns
from streaming.core.state.consumer_states import ConsumerState, ConsumerStates

QUEUES = 4
KEYS = st.tuples(st.integers(0, QUEUES - 1), st.sampled_from(["a", "b", "ID:host-1:1:1", "späť"]))
ATTRIBUTES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "connected": st.booleans(),
        "prefetch": st.integers(0, 3),
        "client_id": st.sampled_from(["", "shop", "\ud800"]),
        "last_ack_at": st.sampled_from([1_700_000_000_000, None]),
    },
)
STATES = st.builds(ConsumerState, st.integers(0, 5), ATTRIBUTES, st.integers(0, 5))


def digests(states: ConsumerStates) -> list[int]:
    """Return a number for each queue that tells what is known of its consumers."""
    return list(states.per_queue(states.digest, QUEUES).tolist())


@pytest.mark.slow
@given(st.lists(st.dictionaries(KEYS, STATES, max_size=5), max_size=4), st.booleans())
def test_they_are_those_of_a_dictionary(steps: list[dict[tuple[int, str], ConsumerState]], stored: bool) -> None:
    """After any reports, stored in between or not; what was taken before does not change."""
    states, expected = ConsumerStates(), dict[tuple[int, str], ConsumerState]()
    for reported in steps:
        before, was = states, dict(states.items())
        states = states.replaced(reported)
        expected |= reported
        assert dict(before.items()) == was
        if stored:
            columns, _ = unpack_columns(pack_columns(states.pack(), {}, compress=True))
            states = pickle.loads(pickle.dumps(ConsumerStates.unpack(columns)))
        assert dict(states.items()) == expected
        assert states.queue.tolist() == sorted(states.queue.tolist())
        found = states.find([*expected, (0, "unknown"), (9, "a")])
        assert {key: states.state(row) for key, row in found.items()} == expected
        connected = {key for key, connected in zip(dict(states.items()), states.connected.tolist(), strict=True) if connected}
        assert connected == {key for key, state in expected.items() if state.attributes.get("connected") is not False}
    states = states.heard({row: state._replace(at=4, dispatched_at=3) for row, (_, state) in enumerate(states.items())})
    expected = {key: state._replace(at=4, dispatched_at=3) for key, state in expected.items()}
    assert dict(states.items()) == expected
    late = states.only(np.array([queue >= 2 for queue in states.queue.tolist()], dtype=bool))
    assert dict(late.items()) == {key: state for key, state in expected.items() if key[0] >= 2}


@given(st.dictionaries(KEYS, STATES, min_size=1, max_size=6), st.data())
def test_a_digest_tells_whether_a_queues_consumers_are_the_same(
    reported: dict[tuple[int, str], ConsumerState], data: st.DataObject
) -> None:
    """It changes when one comes, goes or is reported to be otherwise; not with the time or the order of reports."""
    key = data.draw(st.sampled_from(sorted(reported)))
    known, before = reported[key], digests(ConsumerStates.of(reported))
    again = ConsumerStates().replaced({key: known})
    for other in sorted(reported.keys() - {key}, reverse=True):
        again = again.replaced({other: reported[other]._replace(at=9, dispatched_at=9)})
    assert digests(again) == before
    others = {other: state for other, state in reported.items() if other != key}
    changed = known._replace(attributes={**known.attributes, "dispatched": 7})
    for states in (others, {**reported, key: changed}):
        differ = [queue for queue, (a, b) in enumerate(zip(before, digests(ConsumerStates.of(states)), strict=True)) if a != b]
        assert differ == [key[0]]


def test_without_consumers_there_is_nothing_of_any_queue() -> None:
    """As most shards report: their systems name no consumers."""
    states = ConsumerStates()
    assert (len(states), states.find([(0, "a")]), digests(states)) == (0, {}, [0] * QUEUES)
    assert states.only(states.at > 0) is states
    assert states.replaced({}) is states
    assert np.array_equal(ConsumerStates.unpack(states.pack()).queue, states.queue)
