"""What is known of a dead letter does not depend on the length of the step that its move falls into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streaming.core.settings import QueueName, Settings
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

SETTINGS = Settings(now_is_event_time=True)
SENT_MS, MOVED_MS, END_MS = 1_000, 2_000_000, 3 * 1_800_000
RETENTION_S = 4 * 3_600
LENGTHS_S = (100, 300, 1_800)
"""Shorter and longer than the lateness of ten minutes."""

MOVES: dict[str, tuple[str, dict[str, Any]]] = {
    "reported": ("dead_lettered", {"to_queue": "dead"}),
    "received there, the source is named": ("received", {"receive_count": 3, "from_queue": "orders"}),
    "received there": ("received", {"receive_count": 3}),
}


def moved(move: str, tail: str = "") -> list[dict[str, Any]]:
    """Return the life of a message that is received twice and then moved half an hour after it was sent."""
    source, dead = f"orders{tail}", f"dead{tail}"
    about: dict[str, Any] = {"message_id": "m"} | ({"group": "g", "sequence": "1"} if tail else {})
    settings = {"retention_s": RETENTION_S, "max_receive_count": 2, "dead_letter_queue": dead}
    kind, fields = MOVES[move]
    fields = {name: f"{value}{tail}" if isinstance(value, str) else value for name, value in fields.items()}
    return [
        event("queue_state", 0, source, attributes={"kind": "fifo" if tail else "standard", **settings}),
        event("queue_state", 0, dead, attributes={"retention_s": RETENTION_S}),
        event("sent", SENT_MS, source, **about),
        event("received", 1_850_000, source, receive_count=1, **about),
        event("received", 1_890_000, source, receive_count=2, **about),
        event(kind, MOVED_MS, source if kind == "dead_lettered" else dead, **about, **fields),
    ]


def dead_letters(events: Sequence[dict[str, Any]], every_s: int, tail: str = "") -> tuple[Any, ...]:
    """Return what the core reports of the dead-letter queue at the end, and every arrival it reported."""
    merged = run_steps(in_steps(events, every_s, END_MS // 1000), SETTINGS)
    queue = merged[-1].queues[QueueName("aws_sqs", "", f"dead{tail}")]
    arrivals = {(a.message_id, a.at - T0, a.known_by, a.source, a.receive_count) for one in merged for a in one.arrivals}
    return queue.numbers["dead_letters"], queue.numbers["expires_at"], queue.oldest, queue.total("arrived"), arrivals


@pytest.mark.parametrize("tail", ["", ".fifo"])
@pytest.mark.parametrize("move", MOVES)
def test_a_dead_letter_is_the_same_in_steps_of_any_length(move: str, tail: str) -> None:
    """Retention runs from the original send on a standard queue, from the move on a FIFO queue."""
    short, *longer = (dead_letters(moved(move, tail), every_s, tail) for every_s in LENGTHS_S)
    assert short[:2] == (1, T0 + (MOVED_MS if tail else SENT_MS) + RETENTION_S * 1000)
    assert longer == [short] * len(longer)


def test_a_dead_letter_that_came_and_went_within_a_step_arrived() -> None:
    """It was deleted longer ago than the lateness when the step ends."""
    events = [*moved("received there"), event("deleted", MOVED_MS + 10_000, "dead", message_id="m")]
    found = [dead_letters(events, every_s) for every_s in LENGTHS_S]
    assert [(n, arrived) for n, _, _, arrived, _ in found] == [(0, 1)] * len(found)
    assert found == found[:1] * len(found)


@pytest.mark.parametrize(("tail", "clock"), [("", "original send"), (".fifo", "arrival")])
def test_the_evidence_names_the_clock_that_the_expiry_runs_by(tail: str, clock: str) -> None:
    """A quarter of the retention before the message is lost."""
    since_ms = MOVED_MS if tail else SENT_MS
    for every_s in LENGTHS_S:
        steps = in_steps(moved("reported", tail), every_s, since_ms // 1000 + RETENTION_S - 1)
        (expiring,) = judged(steps, SETTINGS).firing("DeadLetterExpiring")
        assert expiring.evidence["clock"] == clock
        assert expiring.evidence["expires_at"] == T0 + since_ms + RETENTION_S * 1000
