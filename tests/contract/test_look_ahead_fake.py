"""Compare the hidden messages with a small FIFO queue that limits its look-ahead like SQS, which no stand-in does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.replaying import ev, replayed

pytestmark = pytest.mark.simulation

LOOK_AHEAD = 20


@dataclass
class LookAheadFifo:
    """Messages in order; only the first `LOOK_AHEAD` undeleted ones are scanned for a group with none in flight."""

    messages: list[tuple[str, str]] = field(default_factory=list)
    """(message id, group), in order, including those in flight."""
    in_flight: set[str] = field(default_factory=set)
    events: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    now_s: float = 1.0

    def _tell(self, type_: str, message_id: str, group: str, **more: Any) -> None:
        self.now_s += 0.01
        self.events.append(ev(type_, self.now_s, "f.fifo", message_id=message_id, group=group, **more))

    def send(self, group: str) -> None:
        self.sent += 1
        message_id = f"m{self.sent}"
        self.messages.append((message_id, group))
        self._tell("sent", message_id, group, sequence=str(self.sent))

    def receive(self) -> str | None:
        """Receive the first message of an available group within the look-ahead."""
        blocked = {group for message_id, group in self.messages if message_id in self.in_flight}
        for message_id, group in self.messages[:LOOK_AHEAD]:
            if group not in blocked:
                self.in_flight.add(message_id)
                self._tell("received", message_id, group, receive_count=1)
                return message_id
        return None

    def delete(self, message_id: str) -> None:
        group = next(g for m, g in self.messages if m == message_id)
        self.messages = [(m, g) for m, g in self.messages if m != message_id]
        self.in_flight.discard(message_id)
        self._tell("deleted", message_id, group)

    @property
    def hidden(self) -> set[str]:
        """Return messages of groups that have none in flight and none within the look-ahead."""
        blocked = {group for message_id, group in self.messages if message_id in self.in_flight}
        seen = {group for _, group in self.messages[:LOOK_AHEAD]}
        return {m for m, group in self.messages if group not in blocked and group not in seen}


@settings(max_examples=25)
@given(moves=st.lists(st.sampled_from(["a", "a", "a", "a", "b", "c", "receive", "receive", "delete"]), min_size=20, max_size=120))
def test_queuewatch_says_hidden_what_the_queue_cannot_return(moves: list[str]) -> None:
    """It is saturated exactly when a receive returns nothing although groups with none in flight have messages."""
    queue = LookAheadFifo()
    queue.events.append(
        ev("queue_state", 0, "f.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 3600, "look_ahead": LOOK_AHEAD})
    )
    for move in moves:
        if move == "receive":
            queue.receive()
        elif move == "delete":
            for message_id in sorted(queue.in_flight)[:1]:
                queue.delete(message_id)
        else:
            queue.send(move)
    while queue.receive():
        pass
    with TemporaryDirectory() as folder:
        lines = replayed([*queue.events, ev("heartbeat", 30, consumer="x", queue="")], Path(folder))
    fired = lines.signals("LookAheadSaturated")
    saturated = bool(fired) and fired[-1]["status"] == "firing"
    # Nothing more can be received now, so only blocked groups hide messages.
    assert saturated is bool(queue.hidden)
    if saturated:
        assert lines.metric("signals", signal="LookAheadSaturated")[30] == 1
        assert int(lines.metric("groups", queue="f.fifo", state="hidden")[30]) == len(
            {g for m, g in queue.messages if m in queue.hidden}
        )
