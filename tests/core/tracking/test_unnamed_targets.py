"""A reported move that does not say where to is one to the dead-letter queue that its source is known to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from streaming.core.reporting.merge import Merged
from streaming.core.settings import QueueName, QueueRule, Settings
from tests.core.driving import event, run_steps

Wire = dict[str, Any]
SETTINGS = Settings(now_is_event_time=True)
PAIRS = {"standard": ("q", "d"), "from FIFO": ("q.fifo", "d.fifo")}
everywhere = pytest.mark.parametrize("shards", [1, 3])
both_kinds = pytest.mark.parametrize(("source", "dead"), list(PAIRS.values()), ids=list(PAIRS))


def known(source: str, dead: str) -> Wire:
    """Return what the broker says of the source queue."""
    return event("queue_state", 1_000, source, attributes={"dead_letter_queue": dead, "max_receive_count": 3})


def sent(source: str, name: str) -> Wire:
    """Return a send five seconds after the start."""
    return event("sent", 5_000, source, message_id=name, group="g")


def moved(source: str, name: str, **fields: str) -> Wire:
    """Return a move a hundred seconds after the start."""
    return event("dead_lettered", 100_000, source, message_id=name, **fields)


def seen(dead: str, source: str, name: str) -> Wire:
    """Return a receive from the dead-letter queue that names the source."""
    return event("received", 200_000, dead, message_id=name, receive_count=4, from_queue=source, group="g")


def dead_letters(merged: Merged, source: str, dead: str) -> dict[str, Any]:
    """Return what is reported of the dead letters."""
    there, here = (merged.queues[QueueName("aws_sqs", "", name)] for name in (dead, source))
    numbers = {name: there.numbers[name] for name in ("visible", "in_flight", "dead_letters", "expires_at")}
    arrivals = {(a.message_id, a.at, a.source, a.known_by) for a in merged.arrivals if a.queue.queue == dead}
    totals = there.total("arrived"), here.total("dead_lettered")
    return numbers | {"arrivals": arrivals, "totals": totals, "oldest": there.oldest[0]}


def after(steps: Sequence[tuple[int, list[Wire]]], source: str, dead: str, shards: int, settings: Settings) -> dict[str, Any]:
    """Return the dead letters after the steps, each of which starts from the stored state."""
    return dead_letters(run_steps(steps, settings, shards=shards, restart=True)[-1], source, dead)


@pytest.mark.simulation
@everywhere
@both_kinds
@pytest.mark.parametrize("received", [False, True], ids=["as moved", "received there"])
def test_it_is_as_if_the_event_named_it_in_any_order(source: str, dead: str, received: bool, shards: int) -> None:
    """Whichever of the events comes first, all in one step or each in its own, and repeated."""
    names = [f"m{i}" for i in range(6)]
    begin = [known(source, dead)], [sent(source, name) for name in names]
    end = [[seen(dead, source, "m1")]] if received else []
    named = [*begin, [moved(source, name, to_queue=dead) for name in names], *end]
    unnamed = [*begin, [moved(source, name) for name in names], *end]
    expected = after([(300_000, [e for part in named for e in part])], source, dead, shards, SETTINGS)
    assert expected["totals"] == (6, 6)
    for order in permutations(unnamed):
        together = [e for part in order for e in part]
        apart = [(300_000 + n, [*part, *part]) for n, part in enumerate(order)]
        for steps in ([(300_000, together)], [*apart, (300_000 + len(apart), [])]):
            found = after(steps, source, dead, shards, SETTINGS)
            # Where the receive shows the dead letter first, or it is in another shard, its arrival is dated by that receive.
            unsure = {"m1"} if received else set()
            assert but(found, unsure) == but(expected, unsure), [part[0]["type"] for part in order]
            if received and ("fifo" not in dead) and (len(steps) == 1 or order.index(begin[0]) < order.index(end[0])):
                assert found["arrivals"] == expected["arrivals"]


def but(found: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return what is reported without the arrivals of some messages."""
    return found | {"arrivals": {a for a in found["arrivals"] if a[0] not in names}}


@everywhere
@both_kinds
def test_a_configured_dead_letter_queue_is_known_too(source: str, dead: str, shards: int) -> None:
    """Without any report on the queue."""
    settings = replace(SETTINGS, rules=(QueueRule(source, dead_letter_queue=dead),))
    steps = [(300_000, [sent(source, "m"), moved(source, "m")])]
    found = after(steps, source, dead, shards, settings)
    assert (found["arrivals"], found["totals"]) == ({("m", steps[0][1][1]["at"], source, "event")}, (1, 1))


@everywhere
@both_kinds
@pytest.mark.parametrize("named", ["elsewhere", None], ids=["to another queue", "to none that is known"])
def test_otherwise_nothing_arrives_there(source: str, dead: str, named: str | None, shards: int) -> None:
    """An event that names a queue is believed, and a queue without a known dead-letter queue has none."""
    events = [moved(source, "m", **({"to_queue": named} if named else {})), event("heartbeat", 101_000, dead, consumer="x")]
    events += [known(source, dead)] if named else [event("sent", 1_000, dead, message_id="other")]
    merged = run_steps([(300_000, events)], SETTINGS, shards=shards, restart=True)[-1]
    assert all(a.queue.queue != dead for a in merged.arrivals)


@everywhere
@both_kinds
def test_a_move_that_came_too_late_adds_no_dead_letter(source: str, dead: str, shards: int) -> None:
    """As late events alone never create a message."""
    steps = [(2_000, [known(source, dead)]), (900_000, [event("sent", 900_000, source, message_id="now")])]
    steps += [(901_000, [moved(source, "m")])]
    assert after(steps, source, dead, shards, SETTINGS)["totals"] == (0, 0)


@both_kinds
def test_the_move_may_be_the_first_event_of_a_source_with_a_configured_dead_letter_queue(source: str, dead: str) -> None:
    """Whose dead-letter queue is tracked already, as that of other queues."""
    settings = replace(SETTINGS, rules=(QueueRule(source, dead_letter_queue=dead),))
    steps = [(50_000, [moved("other" + source, "old", to_queue=dead)]), (300_000, [moved(source, "m")])]
    found = after(steps, source, dead, 1, settings)
    assert ("m", steps[1][1][0]["at"], source, "event") in found["arrivals"]
