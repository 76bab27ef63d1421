"""A sender that uses one id for all messages: most of them are left out and counted, so that a step takes no longer for them."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.reporting.merge import Merged
from streaming.core.tracking import apply
from tests.core.driving import event, run_steps
from tests.core.reference import Wire

LIMIT = 4


@pytest.fixture(autouse=True)
def _few_epochs() -> Iterator[None]:
    with patch.object(apply, "MOST_EPOCHS", LIMIT):
        yield


def work(message_id: str, times: int, first_ms: int = 0, *, ended: bool = True) -> list[Wire]:
    """A message id is received and deleted again and again, each time as if for the first time."""
    out = []
    for n in range(times):
        at, about = first_ms + 10 * n, {"message_id": message_id, "consumer": "w"}
        out += [event("received", at, receive_count=1, **about), event("deleted", at + 5, **about)]
    return out if ended else out[:-1]


def in_flight(merged: Merged) -> int:
    (summary,) = merged.queues.values()
    return summary.numbers["in_flight"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_the_first_and_the_last_are_applied_and_the_others_named(ended: bool, restart: bool) -> None:
    """The last one says how the message is now. Every event is counted once."""
    events = [*work("null", 10, ended=ended), *work("a", LIMIT), *work("b", 1)]
    merged = run_steps([(1_000, events)], restart=restart)[-1]
    (summary,) = merged.queues.values()
    assert summary.total("deleted") == LIMIT - 1 + ended + LIMIT + 1
    assert merged.invalid_total == {"reused_id": 2 * (10 - LIMIT)}
    assert sum(merged.events_total.values()) == len(events)
    assert in_flight(merged) == (not ended)
    [example] = merged.quarantine
    assert example.reason == "reused_id"
    assert "message 'null' of aws_sqs queue orders ended and came back 9 times" in example.detail
    assert "6 of these are left out" in example.detail


def test_a_message_that_is_used_again_in_later_steps_is_applied_in_full() -> None:
    merged = run_steps([(100 * n + 50, work("job", LIMIT - 1, 100 * n)) for n in range(5)])[-1]
    (summary,) = merged.queues.values()
    assert (summary.total("deleted"), merged.invalid_total) == (5 * (LIMIT - 1), {})


@given(
    times=st.integers(1, 12),
    before=st.integers(0, 3),
    ended=st.booleans(),
    ended_before=st.booleans(),
)
def test_what_is_left_out_changes_nothing_of_how_the_message_is_now(
    times: int, before: int, ended: bool, ended_before: bool
) -> None:
    """Whatever was known of it before."""
    steps = [(100, work("m", before, ended=ended_before)), (1_000, work("m", times, 200, ended=ended))]
    limited = run_steps(steps)[-1]
    with patch.object(apply, "MOST_EPOCHS", 1_000):
        full = run_steps(steps)[-1]
    assert in_flight(limited) == in_flight(full) == (not ended)
    assert sum(limited.events_total.values()) == sum(full.events_total.values())
