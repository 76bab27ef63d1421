"""Signals about consumers: those that hold messages too long, and the verdicts of the broker's own strategies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from streaming.core.reporting.report import ConsumerHolds
from streaming.core.reporting.views import MessageView
from streaming.judge.conditions.conditions import conditions, once
from streaming.judge.context import Context
from streaming.judge.findings.measured import Measured, Near
from streaming.judge.findings.measures import slow_hold
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, seconds, work_time
from streaming.judge.knowledge.unconfirmed_holds import unconfirmed
from streaming.judge.knowledge.windows import no_ends_reported, nothing_ever_ends
from streaming.judge.rules.noisy import noisy_groups
from streaming.judge.rules.prefetched import usual_limit_ms
from streaming.judge.slow_consumer import (
    ConsumerReport,
    StrategyMemory,
    StrategyParams,
    Verdict,
    consumer_report,
    departed_of,
    judge_ack,
    judge_hold,
    judge_prefetch,
    judge_zombie,
)

ZOMBIE_GRACE_MS = 60_000
"""A client whose consumer was removed may leave, or subscribe again, for this long before it is called a zombie."""

FEWEST_TURNS = 2
"""With fewer deliveries that ended with the message given back, it is not known how long it is usually held."""

_STRATEGIES = {"prefetch": judge_prefetch, "ack": judge_ack}
_STRATEGY_NAMES = {"prefetch": "AbortSlowConsumerStrategy", "ack": "AbortSlowAckConsumerStrategy"}


def slow_consumer(c: Context) -> Iterator[Finding | Near]:
    """`hold`: it has held its oldest message longer than max(30 s, 10 x this queue's median hold).

    A consumer that extends the message's window signals that it works: its limit is at least twice the 99th percentile of holds.
    Where few messages were finished yet, it is left to MessageHeldTooLong, which needs no comparison. A long window that was
    requested with the receive is no extension: a consumer that hangs keeps it too. A message that is given back again and again,
    such as a lock, is compared with its own deliveries as well. Who looks into a dead-letter queue may hold its messages for as
    long as one that extends them.
    """
    consumers = [held for held in c.summary.consumers if held.consumer not in unconfirmed(c)]
    if not consumers or no_ends_reported(c.recent) or nothing_ever_ends(c):
        # In the second case, every message seems to be held until its window ends; in the third, for ever.
        return
    min_hold_ms = int(c.thresholds.slow_hold_min_s * 1000)
    usual, factor = c.median_hold_ms, c.thresholds.slow_hold_factor
    listed = [(held, _hold(c, held)) for held in consumers[: c.settings.messages_per_queue]]
    nearest = max((hold for _, hold in listed if hold.limit < math.inf), key=lambda hold: hold.nearness, default=None)
    if nearest is not None:
        yield Near("SlowConsumer", nearest)
    noisiest = _noisiest(c)
    for held, hold in listed:
        verdict = judge_hold(_consumer_report(c, held.consumer, held), min_hold_ms, factor, c.now)
        if not verdict.slow or not hold.reached:
            continue
        held_ms, extended = c.now - held.since, _is_extended(c, held)
        finished = c.summary.consumer_acks.get(held.consumer, 0) > held.since
        evidence: dict[str, Any] = {
            "strategy": "hold",
            "message_id": held.message_id,
            "held_s": seconds(held_ms),
            "limit_s": seconds(hold.limit),
            "held_messages": held.messages,
            "finished_meanwhile": finished,
            "extended": extended,
        }
        if usual is not None:
            evidence["usual_hold_s"] = round(usual / 1000, 3)
        compared = f"; the usual hold on this queue is {work_time(usual)}" if usual is not None else ""
        turn_ms = _usual_turns(c).get(held.message_id)
        if turn_ms is not None:
            compared += f"; before, it was usually given back after {work_time(turn_ms)}"
        client = _client(c, held.consumer)
        others = f" (it holds {held.messages} messages)" if held.messages > 1 else ""
        nothing = "" if finished else "; it has finished nothing since"
        if "client_id" in client:
            evidence["client_id"] = client["client_id"]
        # A change of the visibility that delays a retry looks like one that a long job needs.
        retry = ""
        if extended and finished:
            retry = " It changed the message's visibility: it may still be processing it, or delaying a retry."
        if not extended and finished and c.visibility_ms is not None and held_ms <= c.visibility_ms:
            # That a message failed is not reported: it is in flight until its window ends.
            retry = f" If it failed, it becomes visible again when its {c.visibility_window} ends."
        if held.group is not None:
            evidence["message_group"] = held.group
        crowd = ""
        noisy = held.group if held.group in noisy_groups(c) else noisiest
        if noisy is not None:
            evidence["noisy_group"] = noisy
            whose = "The message belongs to it." if noisy == held.group else "The message does not belong to it."
            crowd = f" Group {noisy} crowds the queue. {whose}"
        evidence["summary"] = (
            f"Consumer {held.consumer}{_in_words(client)} of {c.name.queue} has held message {held.message_id} for "
            f"{duration_ms(held_ms)}{others}{compared}{nothing}.{retry}{crowd}"
        )
        yield c.finding("SlowConsumer", "warning", held.since, evidence, consumer=held.consumer)


def _hold(c: Context, held: ConsumerHolds) -> Measured:
    """Return how long a consumer has held its oldest message, and the limit that applies to it."""
    min_hold_ms, factor = int(c.thresholds.slow_hold_min_s * 1000), c.thresholds.slow_hold_factor
    usual_ms = max(c.median_hold_ms or 0, _usual_turns(c).get(held.message_id, 0))
    hold = slow_hold(held.since, c.now, usual_ms, min_hold_ms, factor)
    may_be_long = c.is_dead_letter_queue or _is_extended(c, held)
    return hold._replace(limit=max(hold.limit, usual_limit_ms(c))) if may_be_long else hold


@once
def _usual_turns(c: Context) -> dict[str, int]:
    """Return message id -> for how many ms a message that comes back again and again is usually held until it is given back.

    A window that runs out says nothing: its consumer may have hung for all of it.
    """
    turns = ((message.message_id, _turns_ms(message)) for message in c.messages("poison"))
    return {message_id: int(statistics.median(lengths)) for message_id, lengths in turns if len(lengths) >= FEWEST_TURNS}


def _turns_ms(message: MessageView) -> list[int]:
    """Return how long each delivery of a message took that ended with the message given back."""
    lengths, received_at = [], None
    for attempt in message.attempts:
        if attempt.what == "received":
            received_at = attempt.at_ms
        elif attempt.what == "released" and received_at is not None:
            lengths.append(attempt.at_ms - received_at)
            received_at = None
    return lengths


def _is_extended(c: Context, held: ConsumerHolds) -> bool:
    """Whether a consumer extends the window of the message that it holds."""
    return held.extended and c.visibility_ms is not None and c.now - held.since > c.visibility_ms


def _noisiest(c: Context) -> str | None:
    """Return the noisy group (see NoisyGroup) with the most messages in flight."""
    noisy = [group for group in c.summary.groups if group.name in noisy_groups(c)]
    return max(noisy, key=lambda group: (group.in_flight, group.name)).name if noisy else None


class StrategyVerdict(NamedTuple):
    """What one of the broker's strategies says of one consumer."""

    strategy: str
    report: ConsumerReport
    verdict: Verdict
    memory: StrategyMemory
    """What the strategy remembers of the consumer for its next verdict."""


@conditions("connected")
def connected_since(c: Context) -> Mapping[str, int]:
    """Return consumer -> since when one has been connected of which neither its start nor an acknowledgement is known.

    It is known to have acknowledged nothing only where acknowledgements are reported, and none of its own was missed.
    """
    if not c.summary.consumer_states or no_ends_reported(c.recent):
        return {}
    return {
        name: state.at
        for name, state in c.summary.consumer_states.items()
        if state.attributes.get("connected") is True
        and all(state.attributes.get(known) is None for known in ("connected_at", "last_ack_at"))
        and name not in c.summary.consumer_acks
    }


@once
def strategy_verdicts(c: Context) -> dict[str, StrategyVerdict]:
    """Return `strategy:consumer` -> verdict, where the strategies are emulated."""
    if not c.settings.slow_strategies or not c.summary.consumer_states:
        return {}
    params = StrategyParams(**c.settings.slow_strategy_params)
    held_by = {held.consumer: held for held in c.summary.consumers}
    verdicts = {}
    for consumer in sorted(c.summary.consumer_states):
        report = _consumer_report(c, consumer, held_by.get(consumer))
        for strategy, rule in _STRATEGIES.items():
            key = f"{strategy}:{consumer}"
            verdict, memory = rule(report, params, c.memory.strategies.get(key), c.now)
            verdicts[key] = StrategyVerdict(strategy, report, verdict, memory)
    return verdicts


def broker_strategies(c: Context) -> Iterator[Finding]:
    """The verdicts of AbortSlowConsumer (`prefetch`) and AbortSlowAckConsumer (`ack`). Shown beside `hold`, never alerting."""
    for strategy, report, verdict, _ in strategy_verdicts(c).values():
        if not verdict.slow:
            continue
        evidence = {
            "strategy": strategy,
            "would_abort": verdict.would_abort,
            "prefetch": report.prefetch or 0,
            "dispatched": report.dispatched,
            "summary": f"{_STRATEGY_NAMES[strategy]} calls consumer {report.consumer} of {c.name.queue} slow: {verdict.why}.",
        }
        since = verdict.since_ms if verdict.since_ms is not None else c.now
        finding = c.finding("SlowConsumer", "info", since, evidence, consumer=report.consumer, part=strategy)
        yield replace(finding, alerting=False)


def zombie_consumer(c: Context) -> Iterator[Finding]:
    """The broker removed a consumer whose client is unaware: it gets nothing, and its acknowledgements are dropped."""
    if not c.summary.consumer_states:
        return
    min_hold_ms = int(c.thresholds.slow_hold_min_s * 1000)
    states = {name: state.attributes for name, state in c.summary.consumer_states.items()}
    for departed in departed_of(states):
        verdict = judge_zombie(departed, min_hold_ms, ZOMBIE_GRACE_MS, c.now)
        if verdict.slow:
            client = _client(c, departed.consumer)
            words = (
                f"Consumer {departed.consumer}{_in_words(client)} of {c.name.queue} is a zombie: it {verdict.why}. Restart it."
            )
            evidence = {"strategy": "zombie", "returned_messages": departed.returned, **client, "summary": words}
            since = verdict.since_ms or departed.removed_at_ms
            yield c.finding("SlowConsumer", "warning", since, evidence, consumer=departed.consumer, part="zombie")


def _client(c: Context, consumer: str) -> dict[str, str]:
    """Return the client id of the consumer's ActiveMQ connection, which its team knows; empty where there is none."""
    state = c.summary.consumer_states.get(consumer)
    client = state.attributes.get("client_id") if state is not None else None
    return {"client_id": client} if isinstance(client, str) and client else {}


def _in_words(client: dict[str, str]) -> str:
    return f" (client {client['client_id']})" if client else ""


def _consumer_report(c: Context, consumer: str, held: ConsumerHolds | None) -> ConsumerReport:
    state = c.summary.consumer_states.get(consumer)
    attributes: dict[str, Any] = dict(state.attributes) if state else {}
    ack = c.summary.consumer_acks.get(consumer)
    attributes["last_ack_at"] = max(filter(None, (attributes.get("last_ack_at"), ack)), default=None)
    known_at = max(ack or 0, held.since if held is not None else 0) if c.basis in ("messages", "consumers") else 0
    if state is None or attributes.get("dispatched") is None or known_at > state.dispatched_at:
        # What it has received and acknowledged since is known better than by a report from before.
        attributes["dispatched"] = held.messages if held is not None else 0
    if held is not None and attributes.get("connected_at") is None and consumer not in unconfirmed(c):
        attributes["connected_at"] = connected_since(c).get(consumer)
    return consumer_report(
        consumer,
        attributes,
        oldest_held_since_ms=held.since if held else None,
        dispatched_at_ms=state.dispatched_at if state else 0,
        queue_waiting=c.knowledge.depth.get("visible", c.summary.numbers["visible"]),
        median_hold_ms=c.median_hold_ms,
    )
