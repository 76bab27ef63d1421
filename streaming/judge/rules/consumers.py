"""Signals about consumers: who sits on a message, and what the broker's own strategies would say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from streaming.core.reporting.report import HeldBy
from streaming.core.state.queues import hold_quantile_ms
from streaming.judge.context import Context, duration, seconds
from streaming.judge.measures import slow_hold
from streaming.judge.signals import Finding
from streaming.judge.slow_consumer import (
    ConsumerFacts,
    StrategyParams,
    departed_of,
    facts_of,
    is_zombie,
    judge_ack,
    judge_hold,
    judge_prefetch,
)

ZOMBIE_GRACE_MS = 60_000
"""A client whose consumer was removed may leave, or subscribe again, for so long before it is called a zombie."""

EXTENDED_QUANTILE = 0.99
EXTENDED_FACTOR = 2
FEWEST_HOLDS = 10
"""Fewer finished messages say nothing about what is usual."""

_STRATEGIES = {"prefetch": judge_prefetch, "ack": judge_ack}
_STRATEGY_NAMES = {"prefetch": "AbortSlowConsumerStrategy", "ack": "AbortSlowAckConsumerStrategy"}


def slow_consumer(c: Context) -> Iterator[Finding]:
    """`hold`: it has held its oldest message longer than max(30 s, 10 x what this queue's messages usually take).

    One that extends the message's window says that it works: it is compared with twice the slowest hundredth as well, and where
    little was finished yet it is left to MessageHeldTooLong, which compares with nothing.
    """
    min_hold_ms = int(c.thresholds.slow_hold_min_s * 1000)
    usual, factor = c.median_hold_ms, c.thresholds.slow_hold_factor
    for held in c.facts.consumers[: c.settings.messages_per_queue]:
        verdict = judge_hold(_facts(c, held.consumer, held), min_hold_ms, factor, c.now)
        if not verdict.slow:
            continue
        held_ms = c.now - held.since
        extended = c.visibility_ms is not None and held_ms > c.visibility_ms
        if extended and held_ms <= _extended_limit_ms(c):
            continue
        finished = c.facts.consumer_acks.get(held.consumer, 0) > held.since
        evidence: dict[str, Any] = {
            "strategy": "hold",
            "message_id": held.message_id,
            "held_s": seconds(held_ms),
            "limit_s": seconds(slow_hold(held.since, c.now, usual, min_hold_ms, factor).limit),
            "held_messages": held.held,
            "finished_meanwhile": finished,
            "extended": extended,
        }
        if usual is not None:
            evidence["usual_hold_s"] = round(usual / 1000, 3)
        compared = f"; usual here is {usual / 1000:.3g} s" if usual is not None else ""
        others = f", one of the {held.held} it holds" if held.held > 1 else ""
        nothing = "" if finished else "; it has finished nothing since"
        evidence["summary"] = (
            f"Consumer {held.consumer} of {c.name.queue} has held message {held.message_id}{others} for {duration(held_ms)}"
            f"{compared}{nothing}."
        )
        yield c.finding("SlowConsumer", "warning", held.since, evidence, consumer=held.consumer)


def _extended_limit_ms(c: Context) -> float:
    """How long a hold that is extended again and again may last before it is unusual here."""
    if sum(c.facts.holds.values()) < FEWEST_HOLDS:
        return math.inf
    return EXTENDED_FACTOR * (hold_quantile_ms(c.memory.holds, EXTENDED_QUANTILE) or 0)


def broker_strategies(c: Context) -> Iterator[Finding]:
    """What AbortSlowConsumer (`prefetch`) and AbortSlowAckConsumer (`ack`) would say. Shown beside `hold`, never alerting."""
    memory = c.memory.strategies
    if not c.settings.slow_strategies or not c.facts.consumer_states:
        memory.clear()
        return
    params = StrategyParams(**c.settings.slow_strategy_params)
    held_by = {held.consumer: held for held in c.facts.consumers}
    before = dict(memory)
    memory.clear()
    for consumer in sorted(c.facts.consumer_states):
        facts = _facts(c, consumer, held_by.get(consumer))
        for strategy, rule in _STRATEGIES.items():
            name = f"{strategy}:{consumer}"
            verdict, memory[name] = rule(facts, params, before.get(name), c.now)
            if not verdict.slow:
                continue
            evidence = {
                "strategy": strategy,
                "would_abort": verdict.would_abort,
                "prefetch": facts.prefetch or 0,
                "dispatched": facts.dispatched,
                "summary": f"{_STRATEGY_NAMES[strategy]} calls consumer {consumer} of {c.name.queue} slow: {verdict.why}.",
            }
            since = verdict.since_ms if verdict.since_ms is not None else c.now
            finding = c.finding("SlowConsumer", "info", since, evidence, consumer=consumer, part=strategy)
            yield Finding(finding.key, finding.severity, finding.since_ms, evidence, alerting=False)


def zombie_consumer(c: Context) -> Iterator[Finding]:
    """The broker gave a consumer up, and its client does not know: it gets nothing, and what it finishes is dropped."""
    if not c.facts.consumer_states:
        return
    min_hold_ms = int(c.thresholds.slow_hold_min_s * 1000)
    states = {name: state.attributes for name, state in c.facts.consumer_states.items()}
    for departed in departed_of(states):
        verdict = is_zombie(departed, min_hold_ms, ZOMBIE_GRACE_MS, c.now)
        if verdict.slow:
            words = f"Consumer {departed.consumer} of {c.name.queue} is a zombie: it {verdict.why}. Restart it."
            evidence = {"strategy": "zombie", "returned_messages": departed.returned, "summary": words}
            since = verdict.since_ms or departed.removed_at_ms
            yield c.finding("SlowConsumer", "warning", since, evidence, consumer=departed.consumer, part="zombie")


def _facts(c: Context, consumer: str, held: HeldBy | None) -> ConsumerFacts:
    state = c.facts.consumer_states.get(consumer)
    attributes: dict[str, Any] = dict(state.attributes) if state else {}
    attributes.setdefault("last_ack_at", c.facts.consumer_acks.get(consumer))
    if held is not None:
        attributes.setdefault("dispatched", held.held)
    return facts_of(
        consumer,
        attributes,
        oldest_held_since_ms=held.since if held else None,
        queue_waiting=c.facts.numbers["visible"],
        median_hold_ms=c.median_hold_ms,
    )
