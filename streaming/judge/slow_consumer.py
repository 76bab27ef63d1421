"""Is a consumer slow? Three rules side by side, and what becomes of a consumer the broker gave up. Pure: no
clock.

`prefetch`  what ActiveMQ's AbortSlowConsumerStrategy goes by: its window is full while more is waiting.
`ack`       what AbortSlowAckConsumerStrategy goes by: it has acknowledged nothing for too long. `hold`
queuewatch's own: it has held its oldest message for longer than this queue's messages usually take.

The first two repeat the broker's own bookkeeping, which counts in ticks: at every check period a consumer
that is listed as slow gets a mark, and `marks x check period` is compared with the limit. Ticks fall on
multiples of the check period since the epoch, so that the same facts give the same answer wherever and
however often they are judged; the broker's ticks start with the broker, so its verdict may come up to one
period earlier or later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from streaming.judge.measures import slow_hold


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """What is known of one consumer of one queue. Times are epoch milliseconds, durations milliseconds."""

    consumer: str
    connected: bool
    prefetch: int | None
    dispatched: int
    """Messages it was given and has not acknowledged."""
    network: bool
    """It forwards to another broker."""
    last_ack_at_ms: int | None
    connected_at_ms: int | None
    oldest_held_since_ms: int | None
    """When the oldest message it holds was dispatched to it; None: it holds nothing."""
    queue_waiting: int
    """Messages in the queue that nobody holds."""
    median_hold_ms: int | None
    """How long this queue's messages are usually held; None: nothing was settled yet."""


@dataclass(frozen=True, slots=True)
class StrategyParams:
    """The attributes of the broker's strategies, with its defaults. Milliseconds and counts; -1 switches
    off."""

    max_time_since_last_ack_ms: int = 30_000
    """`ack` only."""
    max_slow_count: int = -1
    max_slow_duration_ms: int = 30_000
    check_period_ms: int = 30_000
    ignore_idle_consumers: bool = True
    """`ack` only: a consumer that holds nothing is not slow."""
    ignore_network_consumers: bool = True
    prefetch_aborts_on_queues: bool = False
    """Not a parameter of the broker but its behaviour: up to 6.3 it marks a queue's consumer as slow and
    tells so, but never hands it to AbortSlowConsumerStrategy. True answers what the strategy would do if it
    did, as for topics."""


class StrategyMemory(TypedDict):
    """What a strategy remembers of one consumer from one judgement to the next. Plain JSON."""

    tick: int | None
    """The last check, as its number since the epoch; None: never checked."""
    listed: bool
    marks: int
    slow_count: int
    slow: bool
    """`prefetch`: whether the window was full while more waited, when last looked at."""
    since_ms: int | None
    aborted: bool
    dispatched: int
    last_ack_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule's answer. `why` is a sentence for a person."""

    slow: bool
    would_abort: bool
    since_ms: int | None
    why: str


def new_memory() -> StrategyMemory:
    """The memory of a consumer never judged before."""
    return {
        "tick": None,
        "listed": False,
        "marks": 0,
        "slow_count": 0,
        "slow": False,
        "since_ms": None,
        "aborted": False,
        "dispatched": 0,
        "last_ack_at_ms": None,
    }


def judge_prefetch(
    facts: ConsumerFacts, params: StrategyParams, memory: StrategyMemory | None, now_ms: int
) -> tuple[Verdict, StrategyMemory]:
    """Slow: its prefetch window is full while more is waiting. Says which, not which message."""
    before = memory or new_memory()
    after = before.copy()
    tick = after["tick"] = _tick(params, now_ms)
    is_slow = after["slow"] = facts.connected and _is_full(facts)
    if facts.network and params.ignore_network_consumers:
        _unlist(after)
        return Verdict(False, False, None, "network consumers are ignored"), after
    for _ in range(_ticks_between(before["tick"], tick)):
        # Only a check strikes a consumer off: one that is full at every check stays listed, whatever it did
        # in between.
        if not is_slow:
            _unlist(after)
        elif after["listed"]:
            if params.max_slow_duration_ms > 0:
                after["marks"] += 1
            after["aborted"] |= _is_up(after, params)
    if not is_slow:
        return Verdict(False, False, None, _not_full(facts)), after
    if not after["listed"]:
        _list(after, now_ms, marks=0)
    elif not before["slow"] and params.max_slow_count > 0:
        after["slow_count"] += 1
    why = f"holds {facts.dispatched} of {facts.prefetch} messages it may while {facts.queue_waiting} wait"
    if not params.prefetch_aborts_on_queues:
        return Verdict(True, False, after["since_ms"], f"{why}; the broker never aborts for this on a queue"), after
    return Verdict(True, after["aborted"], after["since_ms"], why), after


def judge_ack(
    facts: ConsumerFacts, params: StrategyParams, memory: StrategyMemory | None, now_ms: int
) -> tuple[Verdict, StrategyMemory]:
    """Slow: at a check, its last acknowledgement was longer ago than allowed. Says which, not which
    message."""
    before = memory or new_memory()
    after = before.copy()
    tick = after["tick"] = _tick(params, now_ms)
    after["dispatched"], after["last_ack_at_ms"] = facts.dispatched, facts.last_ack_at_ms
    excuse = _excuse(facts, params)
    last_ms = facts.last_ack_at_ms if facts.last_ack_at_ms is not None else facts.connected_at_ms
    if excuse is None and last_ms is None:
        excuse = "not known when it last acknowledged anything"
    if excuse is not None:
        _unlist(after)
        return Verdict(False, False, None, excuse), after
    assert last_ms is not None
    # The broker drops its own mark of slowness whenever it dispatches to the consumer or takes an
    # acknowledgement with room left in the window; a listed consumer without that mark is struck off and
    # counted from one again.
    was_touched = (before["dispatched"], before["last_ack_at_ms"]) != (facts.dispatched, facts.last_ack_at_ms)
    for number in range(tick - _ticks_between(before["tick"], tick) + 1, tick + 1):
        if after["listed"]:
            if params.max_slow_duration_ms > 0:
                after["marks"] += 1
            if was_touched and not _is_full(facts):
                _unlist(after)
        was_touched = False
        if number * params.check_period_ms - last_ms <= params.max_time_since_last_ack_ms:
            _unlist(after)
        elif not after["listed"]:
            _list(after, last_ms, marks=1)
        elif params.max_slow_count > 0:
            after["slow_count"] += 1
        after["aborted"] |= after["listed"] and _is_up(after, params)
    said = "acknowledged nothing" if facts.last_ack_at_ms is None else "last acknowledged"
    why = f"{said} {_seconds(now_ms - last_ms)} {'since it came' if facts.last_ack_at_ms is None else 'ago'}"
    if not after["listed"]:
        return Verdict(False, False, None, why), after
    return Verdict(True, after["aborted"], after["since_ms"], why), after


def judge_hold(facts: ConsumerFacts, min_hold_ms: int, median_factor: float, now_ms: int) -> Verdict:
    """Slow: it has held its oldest message longer than max(`min_hold_ms`, `median_factor` x the queue's
    median hold).

    Counted from the message's dispatch to it, so neither an idle past nor a steady stream of other
    acknowledgements hides or imitates a message that is stuck."""
    if not facts.connected or facts.oldest_held_since_ms is None:
        return Verdict(False, False, None, "holds nothing")
    held = slow_hold(facts.oldest_held_since_ms, now_ms, facts.median_hold_ms, min_hold_ms, median_factor)
    usual = "" if facts.median_hold_ms is None else f", usual here is {_seconds(facts.median_hold_ms)}"
    why = f"has held its oldest message for {_seconds(held.value)}; the limit is {_seconds(held.limit)}{usual}"
    return Verdict(held.reached, False, facts.oldest_held_since_ms if held.reached else None, why)


@dataclass(frozen=True, slots=True)
class DepartedConsumer:
    """A consumer the broker no longer has. Times are epoch milliseconds."""

    consumer: str
    removed_at_ms: int
    returned: int
    """How many messages it held then; they were given to others."""
    returned_since_ms: int | None
    """When the oldest of them had been dispatched to it."""
    last_ack_at_ms: int | None
    connection_open: bool
    """Its client is still connected."""
    is_back: bool
    """Its client has another consumer on the queue by now."""


def is_zombie(departed: DepartedConsumer, min_hold_ms: int, grace_ms: int, now_ms: int) -> Verdict:
    """Whether the broker gave the consumer up while its client lives on and does not know.

    Such a client works on messages that others were given too, its acknowledgements are dropped, and it gets
    nothing new. The broker does not say who ended a consumer. One that held messages for `min_hold_ms`
    without a word was given up: that is said `grace_ms` after its end. One that was busy may have closed on
    its own, with more in its window: only if its client then stays for `min_hold_ms` without coming back is
    it said too."""
    since_ms = departed.removed_at_ms
    if not departed.connection_open:
        return Verdict(False, False, None, "its client is gone too")
    if departed.is_back:
        return Verdict(False, False, None, "its client has subscribed again")
    if not departed.returned or departed.returned_since_ms is None:
        return Verdict(False, False, None, "it held nothing when it left")
    quiet_ms = since_ms - max(departed.returned_since_ms, departed.last_ack_at_ms or 0)
    alone_ms = now_ms - since_ms
    if alone_ms < (grace_ms if quiet_ms >= min_hold_ms else max(grace_ms, min_hold_ms)):
        return Verdict(False, False, None, "its client may yet leave or subscribe again")
    why = (
        f"was removed holding {departed.returned} messages, {_seconds(quiet_ms)} after its last sign of life; its client "
        f"is still connected {_seconds(alone_ms)} later and gets nothing"
    )
    return Verdict(True, True, since_ms, why)


def facts_of(
    consumer: str,
    attributes: Mapping[str, Any],
    *,
    oldest_held_since_ms: int | None,
    queue_waiting: int,
    median_hold_ms: int | None,
) -> ConsumerFacts:
    """A consumer's facts from the attributes of its latest `consumer_state` and what is tracked of its
    messages."""
    return ConsumerFacts(
        consumer=consumer,
        connected=attributes.get("connected") is not False,
        prefetch=attributes.get("prefetch"),
        dispatched=int(attributes.get("dispatched") or 0),
        network=bool(attributes.get("network", False)),
        last_ack_at_ms=attributes.get("last_ack_at"),
        connected_at_ms=attributes.get("connected_at"),
        oldest_held_since_ms=oldest_held_since_ms,
        queue_waiting=queue_waiting,
        median_hold_ms=median_hold_ms,
    )


def departed_of(states: Mapping[str, Mapping[str, Any]]) -> list[DepartedConsumer]:
    """The departed among a queue's consumers, given the attributes of each one's latest `consumer_state`."""
    present = {_connection(name) for name, attributes in states.items() if attributes.get("connected") is not False}
    return [
        DepartedConsumer(
            consumer=name,
            removed_at_ms=int(attributes["removed_at"]),
            returned=int(attributes.get("returned") or 0),
            returned_since_ms=attributes.get("returned_since"),
            last_ack_at_ms=attributes.get("last_ack_at"),
            connection_open=bool(attributes.get("connection_open", False)),
            is_back=_connection(name) in present,
        )
        for name, attributes in sorted(states.items())
        if attributes.get("connected") is False and attributes.get("removed_at") is not None
    ]


def _excuse(facts: ConsumerFacts, params: StrategyParams) -> str | None:
    """Why the `ack` rule does not look at a consumer at all."""
    if not facts.connected:
        return "not connected"
    if params.max_time_since_last_ack_ms < 0:
        return "max_time_since_last_ack_ms is switched off"
    if facts.network and params.ignore_network_consumers:
        return "network consumers are ignored"
    if params.ignore_idle_consumers and facts.dispatched == 0:
        return "holds nothing"
    return None


def _is_full(facts: ConsumerFacts) -> bool:
    return bool(facts.prefetch) and facts.dispatched >= (facts.prefetch or 0) and facts.queue_waiting > 0


def _not_full(facts: ConsumerFacts) -> str:
    if facts.prefetch is None:
        return "its prefetch is not known"
    if facts.queue_waiting == 0:
        return "nothing waits that it could have been given"
    return f"holds {facts.dispatched} of {facts.prefetch} messages it may"


def _is_up(memory: StrategyMemory, params: StrategyParams) -> bool:
    """Whether the strategy aborts at this check."""
    long_enough = memory["marks"] * params.check_period_ms >= params.max_slow_duration_ms
    often_enough = memory["slow_count"] >= params.max_slow_count
    return (params.max_slow_duration_ms > 0 and long_enough) or (params.max_slow_count > 0 and often_enough)


def _list(memory: StrategyMemory, since_ms: int, marks: int) -> None:
    memory["listed"], memory["marks"], memory["slow_count"] = True, marks, 0
    memory["since_ms"], memory["aborted"] = since_ms, False


def _unlist(memory: StrategyMemory) -> None:
    memory["listed"], memory["marks"], memory["slow_count"] = False, 0, 0
    memory["since_ms"], memory["aborted"] = None, False


def _tick(params: StrategyParams, now_ms: int) -> int:
    return now_ms // params.check_period_ms


def _ticks_between(before: int | None, now: int | None) -> int:
    """Checks since the last judgement; a consumer never judged before was never checked."""
    return 0 if before is None or now is None else max(0, now - before)


def _connection(consumer: str) -> str:
    return consumer.rsplit(":", 2)[0]


def _seconds(duration_ms: float) -> str:
    return f"{duration_ms / 1000:.3g} s"
