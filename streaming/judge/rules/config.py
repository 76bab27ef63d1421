"""QueueMisconfigured: settings that will cause trouble, each with its fix in words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from streaming.core.reporting.report import QueueAttributes
from streaming.core.state.queues import NEVER
from streaming.judge.conditions.conditions import conditions, once
from streaming.judge.conditions.sliding import FIFO_CALLS
from streaming.judge.context import FEWEST_HOLDS, Context
from streaming.judge.findings.signals import Finding, Severity
from streaming.judge.findings.words import duration_ms, per_second
from streaming.judge.history.window import Window
from streaming.judge.rules.short_window import no_timeout_fits, timeout_that_fits

DELAY_CAP_S = {"aws_sqs": 43_200.0, "cloudflare_queues": 86_400.0}
"""The longest time a message can be delayed: SQS by visibility timeout, Cloudflare by retry delay."""

LONGEST_RETENTION_S = {"aws_sqs": 1_209_600.0, "cloudflare_queues": 1_209_600.0}
"""The longest retention that a system accepts."""

LARGEST_BATCH = 100
"""Messages. From this size on, a batch that fails as a whole is worth reporting."""

Problem = tuple[str, dict[str, Any]]
"""The problem and its fix, joined in one sentence; and the numbers for the evidence."""


RELAYED_RULES, RELAYED_RULE_CHARS, RELAYED_SUMMARY_CHARS = 20, 64, 500
"""Limits on a collector's own findings, in findings and in characters: they come from outside."""


@once
def _problems(c: Context) -> dict[str, Problem]:
    """Return rule -> what is wrong, the collector's own findings among them."""
    problems = {rule: problem for rule, check in RULES.items() if (problem := check(c)) is not None}
    return problems | {rule: (words, {}) for rule, words in _relayed(c).items()}


@conditions("lint")
def misconfigured_since(c: Context) -> dict[str, int]:
    """A setting is wrong by one of the rules."""
    return dict.fromkeys(_problems(c), c.now)


def queue_misconfigured(c: Context) -> Iterator[Finding]:
    """Each rule that applies yields its own finding, with `rule` in its key; the collector's own findings are added."""
    for rule, (words, numbers) in _problems(c).items():
        since = misconfigured_since(c)[rule]
        severity: Severity = "warning" if rule == "fifo_throughput" and _full_batches_too(c, numbers) else "info"
        yield c.finding("QueueMisconfigured", severity, since, {"rule": rule, **numbers, "summary": words}, part=rule)


def _full_batches_too(c: Context, numbers: dict[str, Any]) -> bool:
    """Whether the limit is near even if every call carries a full batch."""
    return bool(numbers["messages_per_s"] >= c.thresholds.fifo_limit_ratio * c.thresholds.fifo_call_limit * FIFO_BATCH)


def _relayed(c: Context) -> dict[str, str]:
    """Return rule -> summary of what the queue's collector found in settings that only it sees (attribute `findings`).

    Rules that are also judged here are left out. Several findings of one rule count as one.
    """
    reported = c.summary.attribute("findings")
    if not isinstance(reported, list):
        return {}
    found: dict[str, str] = {}
    for entry in reported:
        rule, words = (entry.get("rule"), entry.get("summary")) if isinstance(entry, dict) else (None, None)
        if not isinstance(rule, str) or not isinstance(words, str) or not rule or rule in RULES:
            continue
        rule = rule[:RELAYED_RULE_CHARS]
        if rule in found or len(found) < RELAYED_RULES:
            words = f"{found[rule]} {words}" if rule in found else words
            found[rule] = words[:RELAYED_SUMMARY_CHARS]
    return found


def redrive_type_mismatch(c: Context) -> Problem | None:
    """A FIFO queue needs a FIFO dead-letter queue, a standard queue a standard one."""
    other = c.dead_letter_attributes
    if other is None or c.name.system != "aws_sqs":
        return None
    kind, kind_there = _kind(c.summary), _kind(other)
    if kind == kind_there:
        return None
    words = (
        f"{c.name.queue} is {kind} but its dead-letter queue {other.name.queue} is {kind_there}: the move will fail. "
        f"Create a {kind} dead-letter queue and point the redrive policy at it."
    )
    return words, {"kind": kind, "dead_letter_queue": other.name.queue, "dead_letter_queue_kind": kind_there}


def _kind(queue: QueueAttributes) -> str:
    reported = queue.attribute("kind")
    if reported in ("standard", "fifo"):
        return str(reported)
    return "fifo" if queue.name.queue.endswith(".fifo") else "standard"


def dead_letter_retention(c: Context) -> Problem | None:
    """A dead letter keeps its original send time: unless retention is longer there, it can be lost as it arrives.

    This does not apply to SQS FIFO queues, where the retention of a dead letter starts again at the move.
    """
    other = c.dead_letter_attributes
    own, target_s = c.summary.number("retention_s"), other.number("retention_s") if other else None
    if other is None or own is None or target_s is None or target_s > own:
        return None
    if c.name.system == "aws_sqs" and _kind(c.summary) == "fifo":
        return None
    words = (
        f"Dead-letter queue {other.name.queue} keeps messages {duration_ms(target_s * 1000)}, no longer than {c.name.queue} "
        f"itself ({duration_ms(own * 1000)}): a message that has waited long expires soon after the move. "
        + (
            f"It cannot be longer than that: shorten the retention of {c.name.queue}."
            if target_s >= LONGEST_RETENTION_S.get(c.name.system, math.inf)
            else "Raise the retention, ideally to 14 days."
        )
    )
    return words, {"retention_s": own, "dead_letter_queue": other.name.queue, "dead_letter_retention_s": target_s}


def single_receive(c: Context) -> Problem | None:
    """maxReceiveCount 1: one consumer crash, or one poll from the console, dead-letters a good message."""
    if c.max_receive_count != 1 or c.name.system == "cloudflare_queues":
        return None
    words = (
        f"{c.name.queue} dead-letters after a single receive: a crash, a deploy or a poll in the console uses up the only "
        "attempt. Set maxReceiveCount to 3 or more."
    )
    return words, {"max_receive_count": 1}


def no_dead_letter_queue(c: Context) -> Problem | None:
    """Without a dead-letter queue a poison message comes back until retention, or is dropped when its retries run out."""
    if (
        c.is_dead_letter_queue
        or c.dead_letter_queue is not None
        or (c.max_receive_count is not None and c.name.system == "aws_sqs")
    ):
        return None
    if c.summary.attribute("has_consumer") is False:
        # No consumer receives from it, so none of its messages can fail.
        return None
    reports_none = "dead_letter_queue" in c.summary.attributes and not c.summary.attribute("dead_letter_queue")
    reports_all = c.summary.number("retention_s") is not None and c.summary.attribute("kind") is not None
    if not reports_none and not reports_all:
        return None
    lost = c.name.system == "cloudflare_queues"
    again = "is received again and again" + ("" if c.retention_ms >= NEVER else " until its retention runs out")
    what = "is deleted when its retries run out" if lost else again
    return f"{c.name.queue} has no dead-letter queue: a message that fails {what}. Add one.", {}


def no_retries(c: Context) -> Problem | None:
    """max_retries 0: the first failure of a message is its last. On Cloudflare that is one delivery in all."""
    single = c.name.system == "cloudflare_queues" and c.max_receive_count == 1
    if c.summary.number("max_retries") != 0 and not single:
        return None
    lost = f"goes to {c.dead_letter_queue}" if c.dead_letter_queue else "is lost"
    words = (
        f"{c.name.queue} retries nothing: a message {lost} at its first failure, even a deploy or a transient error. "
        "Set max_retries to 3 or more."
    )
    return words, {"max_retries": 0}


def whole_batch_fails(c: Context) -> Problem | None:
    """A full-sized batch whose handler throws: one bad message fails 99 good ones with it."""
    size = c.summary.number("max_batch_size")
    if size is None or size < LARGEST_BATCH or c.summary.attribute("throws_on_error") is not True:
        return None
    words = (
        f"An error in the consumer of {c.name.queue} fails its whole batch of up to {size:g}: every good message in it is "
        "delivered again and uses up a retry. Acknowledge or retry each message by itself, or make batches smaller."
    )
    return words, {"max_batch_size": int(size), "throws_on_error": True}


def allow_policy(c: Context) -> Problem | None:
    """The dead-letter queue's RedriveAllowPolicy must let this queue in, and can list 10 sources at most."""
    return _excluded_by_dead_letter_queue(c) or _lists_too_many_sources(c)


def _excluded_by_dead_letter_queue(c: Context) -> Problem | None:
    other = c.dead_letter_attributes
    policy = _redrive_allow_policy(other) if other else None
    if other is None or policy is None:
        return None
    permission = policy.get("permission") or policy.get("redrivePermission")
    names = {str(source).rsplit(":", 1)[-1] for source in _sources(policy)}
    if permission == "denyAll" or (permission == "byQueue" and c.name.queue not in names):
        words = (
            f"Dead-letter queue {other.name.queue} does not accept messages from {c.name.queue} ({permission}): "
            "failing messages stay in the source. Add it to the redrive allow policy."
        )
        return words, {"dead_letter_queue": other.name.queue, "permission": permission}
    return None


def _lists_too_many_sources(c: Context) -> Problem | None:
    policy = _redrive_allow_policy(c.summary)
    sources = _sources(policy) if policy is not None else []
    if len(sources) <= 10:
        return None
    words = (
        f"The redrive allow policy of {c.name.queue} lists {len(sources)} source queues, but 10 is the limit. "
        "Use allowAll or split the dead-letter queue."
    )
    return words, {"sources": len(sources)}


def _sources(policy: dict[str, Any]) -> list[Any]:
    sources = policy.get("sources") or policy.get("sourceQueueArns")
    return sources if isinstance(sources, list) else []


def _redrive_allow_policy(queue: QueueAttributes) -> dict[str, Any] | None:
    """Return the policy of a queue; it may be JSON text, as SQS returns it."""
    policy = queue.attribute("redrive_allow_policy")
    if isinstance(policy, str):
        # What anybody may have sent: neither broken nor deeply nested text may end the step.
        with suppress(ValueError, RecursionError):
            policy = json.loads(policy)
    return policy if isinstance(policy, dict) else None


def short_visibility(c: Context) -> Problem | None:
    """Processing usually outlasts the visibility timeout: every message is delivered twice and counts towards poison.

    No harm is done while consumers extend the window, or ask for a longer one with each receive: no delivery outlives it then.
    """
    held = sum(c.memory.hold_weights.values())
    if c.visibility_ms is None or held < FEWEST_HOLDS or c.summary.number("visibility_timeout_s") is None:
        return None
    usual = c.median_hold_ms
    if usual is None or usual <= c.visibility_ms or not c.summary.total("outlived"):
        return None
    wanted_ms = 6 * usual
    fits_s = timeout_that_fits(c, usual, wanted_ms)
    if fits_s is None:
        remedy = no_timeout_fits(c)
    else:
        longer = "six times the usual processing time" if fits_s * 1000 >= wanted_ms else duration_ms(fits_s * 1000)
        remedy = f"Raise it to {longer}, or extend while working."
    words = (
        f"Messages of {c.name.queue} are usually held {duration_ms(usual)} but its visibility timeout is "
        f"{duration_ms(c.visibility_ms)}: without an extension in time they are delivered again while still being worked on. "
        f"{remedy}"
    )
    return words, {"usual_hold_s": round(usual / 1000, 1), "visibility_timeout_s": c.visibility_ms / 1000}


def backoff_beyond_cap(c: Context) -> Problem | None:
    """A back-off that grows beyond the longest delay the system accepts is cut off, or refused."""
    cap_s = DELAY_CAP_S.get(c.name.system)
    longest = c.summary.number("max_retry_delay_s") or c.summary.number("retry_delay_s")
    attempt = c.summary.number("backoff_cap_exceeded_at_attempt")
    if cap_s is None or (attempt is None and (longest is None or longest <= cap_s)):
        return None
    at = f" at attempt {int(attempt)}" if attempt is not None else ""
    words = (
        f"The back-off of {c.name.queue} exceeds the longest delay of {duration_ms(cap_s * 1000)}{at}. "
        "Cap the delay, or the retry fails or comes early."
    )
    return words, {"delay_cap_s": cap_s} | ({"attempt": int(attempt)} if attempt is not None else {})


FIFO_BATCH = 10
"""The most messages one call can carry."""
FIFO_SLICES = 5
_CALLS = {"sent": "sends", "received": "receives", "deleted": "deletes"}


def fifo_throughput(c: Context) -> Problem | None:
    """A FIFO queue without high throughput accepts 300 calls a second of each kind; close to that for 5 min, it soon throttles.

    Messages are reported, not calls: `fifo_messages_per_call` is set for a queue whose calls carry several.
    """
    if not _is_limited(c):
        return None
    mode, scope = c.summary.attribute("throughput_limit"), c.summary.attribute("deduplication_scope")
    limits, span_ms = c.thresholds, FIFO_CALLS[0].window_ms(c)
    samples = c.samples_of(span_ms)
    if not len(samples) or c.now - int(samples.at[0]) < span_ms:
        return None
    rates = ((calls.field, _least_rate(samples, calls.field, c.now, span_ms)) for calls in FIFO_CALLS)
    busiest, rate = max(rates, key=lambda pair: pair[1])
    limit = limits.fifo_call_limit * limits.fifo_messages_per_call
    if limit <= 0 or rate < limits.fifo_limit_ratio * limit:
        return None
    words = (
        f"{c.name.queue} has had at least {per_second(rate)} {_CALLS[busiest]} a second for {duration_ms(span_ms)}: "
        f"{rate / limit:.0%} of the {limits.fifo_call_limit} calls a second that a FIFO queue takes without high throughput, at "
        f"{limits.fifo_messages_per_call} a call. Beyond it calls are refused. Send, receive and delete in batches of ten, or "
        "set FifoThroughputLimit to perMessageGroupId and DeduplicationScope to messageGroup."
    )
    numbers = {
        "calls": _CALLS[busiest],
        "messages_per_s": round(rate, 1),
        "limit_messages_per_s": limit,
        "limit_ratio": round(rate / limit, 3),
        "throughput_limit": str(mode),
    }
    return words, numbers | ({} if scope is None else {"deduplication_scope": str(scope)})


def _is_limited(c: Context) -> bool:
    """Whether this is a FIFO queue without high throughput, as far as its mode is reported."""
    mode = c.summary.attribute("throughput_limit")
    if mode is None or c.name.system != "aws_sqs" or _kind(c.summary) != "fifo":
        return False
    return mode != "perMessageGroupId" or c.summary.attribute("deduplication_scope") not in (None, "messageGroup")


def may_near_fifo_limit(c: Context) -> bool:
    """Whether so many calls were made lately that time alone may bring each part of the period close to the limit."""
    if not _is_limited(c):
        return False
    limits = c.thresholds
    least = limits.fifo_limit_ratio * limits.fifo_call_limit * limits.fifo_messages_per_call * limits.fifo_limit_s
    return any(calls.growth(c) >= least for calls in FIFO_CALLS)


def _least_rate(samples: Window, total: str, now: int, span_ms: int) -> float:
    """Return messages per second in the quietest fifth of a period."""
    bounds = [samples.last_before(now - span_ms * (FIFO_SLICES - i) // FIFO_SLICES) for i in range(FIFO_SLICES + 1)]
    at, column = samples.at, samples[total]
    rates = [float(column[j] - column[i]) * 1000 / float(at[j] - at[i]) for i, j in pairwise(bounds) if at[j] > at[i]]
    return min(rates, default=0.0)


RULES: dict[str, Callable[[Context], Problem | None]] = {
    "redrive_type_mismatch": redrive_type_mismatch,
    "dead_letter_retention": dead_letter_retention,
    "single_receive": single_receive,
    "no_dead_letter_queue": no_dead_letter_queue,
    "no_retries": no_retries,
    "whole_batch_fails": whole_batch_fails,
    "allow_policy": allow_policy,
    "short_visibility": short_visibility,
    "backoff_beyond_cap": backoff_beyond_cap,
    "fifo_throughput": fifo_throughput,
}
