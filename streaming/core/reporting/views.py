"""A message as it is shown to a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

State = Literal["visible", "in_flight", "delayed"]
STATES: tuple[State, ...] = get_args(State)
"""The states of a message that is still in its queue."""


class Attempt(NamedTuple):
    """One receive, extension or release in a message's timeline. `end_ms` is the end of the window it opened, if any."""

    # In an outage a step makes a hundred thousand of them: a frozen dataclass takes 2.6 times as long.
    at_ms: int
    what: Literal["received", "extended", "released"]
    receive_count: int
    end_ms: int | None
    consumer: str | None


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message worth showing: a suspect, a head, a dead letter, one of the oldest."""

    message_id: str
    state: State
    sent_at_ms: int
    """Until its send time is known, the time of its first event: `sent_known` tells."""
    receive_count: int
    why: tuple[str, ...]
    """Why it is listed: `poison`, `held`, `head`, `dead_letter`, `oldest`."""
    group: str | None = None
    sequence: str | None = None
    consumer: str | None = None
    last_received_at_ms: int | None = None
    invisible_until_ms: int | None = None
    arrived_at_ms: int | None = None
    """Dead letters: when it arrived in this queue."""
    expires_at_ms: int | None = None
    arrival_known_by: str | None = None
    """Dead letters: `event`, `first_receive` or `inferred`."""
    attempts: tuple[Attempt, ...] = ()
    sent_known: bool = True
    deliveries_seen: int = 0
    """The number of deliveries seen in this queue; a dead letter's receive count continues from its source queue."""

    refused_settlements: int = 0
    """How often the broker refused to settle it because its visibility window had ended: the work was done, too late."""
    held_since_ms: int | None = None
    """Since when it has been in flight without a break, extended or not: since its latest receive or, where only extensions are
    reported, since the first of those."""
