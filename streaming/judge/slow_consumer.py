"""Judge slow consumers by three rules, and detect clients whose consumer the broker removed. Pure: no clock.

- `prefetch`: the rule of ActiveMQ's AbortSlowConsumerStrategy: its window is full while more messages wait.
- `ack`: the rule of AbortSlowAckConsumerStrategy: it has acknowledged nothing for too long.
- `hold`: queuewatch's own: it has held its oldest message for longer than this queue's messages usually take.

The first two emulate the broker's bookkeeping, which counts in ticks: at every check period a consumer listed as slow gets a
mark, and `marks x check period` is compared with the limit. Ticks fall on multiples of the check period since the epoch, so that
the same input gives the same answer wherever and however often they are judged. The broker's ticks start with the broker, so its
verdict may come up to one period earlier or later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from streaming.judge.findings.measures import slow_hold
from streaming.judge.findings.words import plural, work_time


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """What is known of one consumer of one queue. Times are epoch milliseconds, durations milliseconds."""

    consumer: str
    connected: bool
    prefetch: int | None
    dispatched: int
    """Messages dispatched to it and not acknowledged."""
    held_from_ms: int
    """Since when it holds any, as far as is known: the dispatch of the oldest one, or the report that counts them."""
    network: bool
    """Whether it forwards to another broker."""
    last_ack_at_ms: int | None
    connected_at_ms: int | None
    oldest_held_since_ms: int | None
    """When the oldest message it holds was dispatched to it; None: it holds none."""
    queue_waiting: int
    """Messages in the queue that no consumer holds."""
    median_hold_ms: int | None
    """The median time this queue's messages are held; None: none was settled yet."""


@dataclass(frozen=True, slots=True)
class StrategyParams:
    """The attributes of the broker's strategies, with its defaults.

    Milliseconds and counts; -1 switches off.
    """

    max_time_since_last_ack_ms: int = 30_000
    """`ack` only."""
    max_slow_count: int = -1
    max_slow_duration_ms: int = 30_000
    check_period_ms: int = 30_000
    ignore_idle_consumers: bool = True
    """`ack` only: a consumer that holds no message is not slow."""
    ignore_network_consumers: bool = True
    prefetch_aborts_on_queues: bool = False
    """Not a parameter of the broker but its behaviour: up to 6.3 it marks a queue's consumer as slow and publishes
    that, but never passes it to AbortSlowConsumerStrategy. True gives the verdict as if it did, as it does for
    topics."""


class StrategyMemory(TypedDict):
    """What a strategy remembers about one consumer between evaluations. Plain JSON."""

    tick: int | None
    """The number of the last check since the epoch; None: never checked."""
    listed: bool
    marks: int
    slow_count: int
    slow: bool
    """`prefetch`: whether the window was full while more waited, at the last evaluation."""
    since_ms: int | None
    aborted: bool
    dispatched: int
    last_ack_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one rule. `why` is a sentence for the reader."""

    slow: bool
    would_abort: bool
    since_ms: int | None
    why: str


def new_memory() -> StrategyMemory:
    """Return the memory of a consumer never judged before."""
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
    report: ConsumerReport, params: StrategyParams, memory: StrategyMemory | None, now_ms: int
) -> tuple[Verdict, StrategyMemory]:
    """Slow: its prefetch window is full while more messages wait. Names the consumer, not a message."""
    before = memory or new_memory()
    after = before.copy()
    tick = after["tick"] = _tick(params, now_ms)
    is_slow = after["slow"] = report.connected and _is_full(report)
    if report.network and params.ignore_network_consumers:
        _unlist(after)
        return Verdict(False, False, None, "network consumers are ignored"), after
    if checks := _ticks_between(before["tick"], tick):
        # Only a check removes a consumer from the list: one whose window is full at every check stays listed,
        # whatever it did in between.
        if not is_slow:
            _unlist(after)
        elif after["listed"]:
            if params.max_slow_duration_ms > 0:
                after["marks"] += checks
            after["aborted"] |= _is_up(after, params)
    if not is_slow:
        return Verdict(False, False, None, _not_full(report)), after
    if not after["listed"]:
        _list(after, now_ms, marks=0)
    elif not before["slow"] and params.max_slow_count > 0:
        after["slow_count"] += 1
    why = f"holds {report.dispatched} of {report.prefetch} messages it may while {report.queue_waiting} wait"
    if not params.prefetch_aborts_on_queues:
        return Verdict(True, False, after["since_ms"], f"{why}; the broker never aborts for this on a queue"), after
    return Verdict(True, after["aborted"], after["since_ms"], why), after


def judge_ack(
    report: ConsumerReport, params: StrategyParams, memory: StrategyMemory | None, now_ms: int
) -> tuple[Verdict, StrategyMemory]:
    """Slow: at a check, its last acknowledgement was longer ago than allowed.

    Names the consumer, not a message.
    """
    before = memory or new_memory()
    after = before.copy()
    tick = after["tick"] = _tick(params, now_ms)
    after["dispatched"], after["last_ack_at_ms"] = report.dispatched, report.last_ack_at_ms
    excuse, last_ms = _excuse(report, params), _last_sign_ms(report)
    if excuse is None and last_ms is None:
        excuse = "not known when it last acknowledged anything"
    if excuse is not None:
        _unlist(after)
        return Verdict(False, False, None, excuse), after
    assert last_ms is not None
    # The broker clears its own mark of slowness whenever it dispatches to the consumer or accepts an
    # acknowledgement with room left in the window; a listed consumer without that mark is removed and
    # counted from one again.
    was_touched = (before["dispatched"], before["last_ack_at_ms"]) != (report.dispatched, report.last_ack_at_ms)
    first = tick - _ticks_between(before["tick"], tick) + 1
    if params.ignore_idle_consumers and not before["dispatched"]:
        # It held nothing at earlier checks, however long ago it was last judged.
        first = max(first, -(-report.held_from_ms // params.check_period_ms))
    overdue_at = (last_ms + params.max_time_since_last_ack_ms) // params.check_period_ms + 1
    number = first
    while number <= tick:
        if after["listed"]:
            if params.max_slow_duration_ms > 0:
                after["marks"] += 1
            if was_touched and not _is_full(report):
                _unlist(after)
        was_touched = False
        if number < overdue_at:
            _unlist(after)
        elif not after["listed"]:
            _list(after, last_ms, marks=1)
        elif params.max_slow_count > 0:
            after["slow_count"] += 1
        if number < overdue_at:
            number = overdue_at  # No check before that finds anything. After an outage there may be thousands.
            continue
        if params.max_slow_duration_ms > 0:
            after["marks"] += tick - number
        if params.max_slow_count > 0:
            after["slow_count"] += tick - number
        after["aborted"] |= _is_up(after, params)
        break
    said = "acknowledged nothing" if report.last_ack_at_ms is None else "last acknowledged"
    why = f"{said} {work_time(now_ms - last_ms)} {'since it came' if report.last_ack_at_ms is None else 'ago'}"
    if not after["listed"]:
        return Verdict(False, False, None, why), after
    return Verdict(True, after["aborted"], after["since_ms"], why), after


def next_ack_check(report: ConsumerReport, params: StrategyParams, now_ms: int, *, slow: bool, counted: bool) -> int | None:
    """Return the next check at which the verdict of `judge_ack` may change if nothing more is reported; None: at none.

    One that is slow is so until a check finds otherwise, whatever it has acknowledged since the last one. One that holds nothing,
    or of which too little is known, is passed over by each check, whatever an event shows later. `counted`: whether the last
    report counts messages that it holds. The next one may count as many, which looks like no change.
    """
    last_ms = _last_sign_ms(report)
    is_idle = params.ignore_idle_consumers and report.dispatched == 0
    if _exemption(report, params) is not None or (is_idle and not counted):
        return None
    overdue_from = 0 if slow or is_idle or last_ms is None else last_ms + params.max_time_since_last_ack_ms + 1
    return max(now_ms // params.check_period_ms + 1, -(-overdue_from // params.check_period_ms)) * params.check_period_ms


def judge_hold(report: ConsumerReport, min_hold_ms: int, median_factor: float, now_ms: int) -> Verdict:
    """Slow: it has held its oldest message longer than `min_hold_ms` and `median_factor` times the median hold.

    The hold starts at the message's dispatch to it, so neither an idle past nor a steady stream of other acknowledgements hides
    or imitates a stuck message.
    """
    if not report.connected or report.oldest_held_since_ms is None:
        return Verdict(False, False, None, "holds nothing")
    held = slow_hold(report.oldest_held_since_ms, now_ms, report.median_hold_ms, min_hold_ms, median_factor)
    usual = "" if report.median_hold_ms is None else f", the usual hold on this queue is {work_time(report.median_hold_ms)}"
    why = f"has held its oldest message for {work_time(held.value)}; the limit is {work_time(held.limit)}{usual}"
    return Verdict(held.reached, False, report.oldest_held_since_ms if held.reached else None, why)


@dataclass(frozen=True, slots=True)
class DepartedConsumer:
    """A consumer the broker no longer has. Times are epoch milliseconds."""

    consumer: str
    removed_at_ms: int
    returned: int
    """How many messages it held then; they were redelivered to others."""
    returned_since_ms: int | None
    """When the oldest of these had been dispatched to it."""
    last_ack_at_ms: int | None
    connection_open: bool
    """Whether its client is still connected."""
    is_back: bool
    """Whether its client has another consumer on the queue, or has had one since."""


def judge_zombie(departed: DepartedConsumer, min_hold_ms: int, grace_ms: int, now_ms: int) -> Verdict:
    """Whether the broker removed the consumer while its client lives on unaware.

    Such a client works on messages that were redelivered to others, its acknowledgements are dropped, and it
    gets nothing new. The broker does not report who ended a consumer. One that held messages for `min_hold_ms`
    without activity was removed: this is reported `grace_ms` after its end. One that was busy may have closed
    by itself, with more in its window: it is reported only if its client then stays for `min_hold_ms` without
    subscribing again.
    """
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
        f"was removed holding {plural(departed.returned, 'message')}, {work_time(max(quiet_ms, 0))} after its last sign of life; "
        f"its client is still connected {work_time(alone_ms)} later and gets nothing"
    )
    return Verdict(True, True, since_ms, why)


def consumer_report(
    consumer: str,
    attributes: Mapping[str, Any],
    *,
    oldest_held_since_ms: int | None,
    dispatched_at_ms: int,
    queue_waiting: int,
    median_hold_ms: int | None,
) -> ConsumerReport:
    """Build a consumer's report from its latest `consumer_state` attributes and its tracked messages.

    `dispatched_at_ms`: when the broker last reported how many it holds.
    """
    return ConsumerReport(
        consumer=consumer,
        connected=attributes.get("connected") is not False,
        prefetch=attributes.get("prefetch"),
        dispatched=int(attributes.get("dispatched") or 0),
        held_from_ms=dispatched_at_ms if oldest_held_since_ms is None else oldest_held_since_ms,
        network=bool(attributes.get("network", False)),
        last_ack_at_ms=attributes.get("last_ack_at"),
        connected_at_ms=attributes.get("connected_at"),
        oldest_held_since_ms=oldest_held_since_ms,
        queue_waiting=queue_waiting,
        median_hold_ms=median_hold_ms,
    )


def departed_of(states: Mapping[str, Mapping[str, Any]]) -> list[DepartedConsumer]:
    """Return the departed among a queue's consumers, given the attributes of each one's latest `consumer_state`."""
    present = {_connection(name) for name, attributes in states.items() if attributes.get("connected") is not False}
    subscribed_at: dict[str, int] = {}
    for name, attributes in states.items():
        client, at = _connection(name), attributes.get("connected_at") or 0
        subscribed_at[client] = max(at, subscribed_at.get(client, 0))
    return [
        DepartedConsumer(
            consumer=name,
            removed_at_ms=int(attributes["removed_at"]),
            returned=int(attributes.get("returned") or 0),
            returned_since_ms=attributes.get("returned_since"),
            last_ack_at_ms=attributes.get("last_ack_at"),
            connection_open=bool(attributes.get("connection_open", False)),
            is_back=_connection(name) in present or subscribed_at[_connection(name)] >= int(attributes["removed_at"]),
        )
        for name, attributes in sorted(states.items())
        if attributes.get("connected") is False and attributes.get("removed_at") is not None
    ]


def _last_sign_ms(report: ConsumerReport) -> int | None:
    """Return since when a consumer has acknowledged nothing, as far as that is known."""
    return report.last_ack_at_ms if report.last_ack_at_ms is not None else report.connected_at_ms


def _excuse(report: ConsumerReport, params: StrategyParams) -> str | None:
    """Return why the `ack` rule skips a consumer, or None."""
    if (exemption := _exemption(report, params)) is not None:
        return exemption
    return "holds nothing" if params.ignore_idle_consumers and report.dispatched == 0 else None


def _exemption(report: ConsumerReport, params: StrategyParams) -> str | None:
    """Return why the `ack` rule is not applied to a consumer, whatever it does; or None."""
    if not report.connected:
        return "not connected"
    if params.max_time_since_last_ack_ms < 0:
        return "max_time_since_last_ack_ms is switched off"
    if report.network and params.ignore_network_consumers:
        return "network consumers are ignored"
    return None


def _is_full(report: ConsumerReport) -> bool:
    return bool(report.prefetch) and report.dispatched >= (report.prefetch or 0) and report.queue_waiting > 0


def _not_full(report: ConsumerReport) -> str:
    if report.prefetch is None:
        return "its prefetch is not known"
    if report.queue_waiting == 0:
        return "nothing waits that it could have been given"
    return f"holds {report.dispatched} of {report.prefetch} messages it may"


def _is_up(memory: StrategyMemory, params: StrategyParams) -> bool:
    """Whether the strategy aborts the consumer at this check."""
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
    """Return the checks since the last evaluation; a consumer never judged before was never checked."""
    return 0 if before is None or now is None else max(0, now - before)


def _connection(consumer: str) -> str:
    return consumer.rsplit(":", 2)[0]
