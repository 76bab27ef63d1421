"""Since when a message is held, where its extensions are all that is reported: no receive of it is."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER
from tests.core.driving import T0, event, run_steps

Events = list[dict[str, Any]]
ABOUT = {"message_id": "m"}


def extended(at_s: float, for_s: float = 30, **about: Any) -> dict[str, Any]:
    return event("extended", int(1000 * at_s), invisible_until=T0 + int(1000 * (at_s + for_s)), **ABOUT | about)


def held_since_s(events: Events, *, in_steps: bool, **settings: Any) -> float:
    """Return since when the longest held message is held a second after the last event, in seconds after T0."""
    last = events[-1]["at"] - T0
    steps = [(e["at"] - T0, [e]) for e in events] if in_steps else [(last, events)]
    merged = run_steps([*steps, (last + 1_000, [])], Settings(now_is_event_time=True, **settings), restart=True)[-1]
    (summary,) = merged.queues.values()
    views = [one.view for kind in summary.messages.values() for one in kind]
    assert min(view.held_since_ms or NEVER for view in views) == summary.numbers["held_since"]
    return (summary.numbers["held_since"] - T0) / 1000


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize(
    ("events", "since_s"),
    [
        ([extended(10)], 10),
        ([extended(10), extended(35), extended(60)], 10),
        ([extended(10), extended(41), extended(60)], 41),
        ([extended(10), event("released", 20_000, **ABOUT), extended(30), extended(50)], 30),
        ([extended(10, 600), extended(20, 10), extended(31), extended(55)], 31),
        ([extended(10), event("received", 20_000, **ABOUT), extended(45)], 20),
        ([extended(10), extended(35, message_id="other"), extended(36), extended(60)], 10),
    ],
    ids=[
        "the first extension",
        "the first of several",
        "its window had ended",
        "it was given back",
        "its window was made shorter, and ended",
        "a receive was reported",
        "beside another message",
    ],
)
def test_a_hold_begins_with_the_first_extension_of_an_unbroken_row(events: Events, since_s: float, in_steps: bool) -> None:
    assert held_since_s(events, in_steps=in_steps) == since_s


@pytest.mark.parametrize("in_steps", [False, True])
def test_the_hold_outlasts_what_is_kept_of_its_extensions(in_steps: bool) -> None:
    """Of a first delivery too, after which the message came back."""
    row = [extended(at) for at in range(100, 1_000, 20)]
    assert held_since_s(row, in_steps=in_steps, attempts_per_message=5) == 100
    before = [extended(0), extended(20), extended(40)]
    assert held_since_s([*before, *row], in_steps=in_steps, attempts_per_message=5) == 100
    assert held_since_s([*before, *row, extended(1_030)], in_steps=in_steps, attempts_per_message=5) == 1_030
