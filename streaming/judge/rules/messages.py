"""Signals about messages that are not settled: poison, and held too long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streaming.core.reporting.views import MessageView
from streaming.core.state.queues import reports_no_dead_letter_queue
from streaming.judge.context import Context
from streaming.judge.findings import measures
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import age_s, at_least, duration_ms, plural, refused, seconds
from streaming.judge.knowledge.unconfirmed_holds import unconfirmed
from streaming.judge.knowledge.windows import acknowledgements_are_unseen
from streaming.judge.rules.attempts import may_succeed, usual_attempt_ms
from streaming.judge.rules.prefetched import has_window, waits_for_its_turn


def poison_message(c: Context) -> Iterator[Finding]:
    """Unsettled and received at least min(3, max(2, max_receive_count)) times: the message keeps coming back.

    It is shown, but does not alert, while only one consumer has failed it and the next delivery takes no longer than usual.
    """
    suspects = c.messages("poison")
    if not suspects:
        return
    limit = c.max_receive_count
    unread = _unread(c, suspects)
    for message in suspects:
        count = message.receive_count
        evidence: dict[str, Any] = {
            "receive_count": count,
            "threshold_receives": c.poison_receives,
            "age_s": age_s(c.now, message.sent_at_ms),
            "state": message.state,
        }
        if limit is None:
            limit_words = _unlimited(c)
        else:
            left = max(0, limit - count)
            evidence |= {"max_receive_count": limit, "receives_left": left, "final_attempt": left == 0}
            limit_words = f"{plural(left, 'receive')} left" if left else f"this was the final attempt; {_what_follows(c)}"
        if not message.sent_known:
            evidence["age_exact"] = False
        if reports_no_dead_letter_queue(c.summary.attributes):
            evidence["has_dead_letter_queue"] = False
        evidence |= _who(message)
        too_late = ""
        if message.refused_settlements:
            evidence["refused_settlements"] = message.refused_settlements
            too_late = f". Its deletion {refused(message.refused_settlements, c.visibility_window)}"
        age = f"{at_least(exact=message.sent_known)}{duration_ms(c.now - message.sent_at_ms)}"
        evidence["summary"] = (
            f"Message {message.message_id} was received {count} times and never deleted, {age} after it was sent; "
            f"{limit_words}{too_late}."
        )
        finding = c.finding(
            "PoisonMessage", "warning", _crossed_at(message, c.poison_receives), evidence, message_id=message.message_id
        )
        if message.message_id in unread:
            finding = finding.folded_into("PoisonMessage")
        yield _awaiting_its_outcome(c, message, finding)


def _awaiting_its_outcome(c: Context, message: MessageView, finding: Finding) -> Finding:
    """Return the finding, which does not alert while the message may still be finished. One that was announced stays so."""
    known, usual_ms = c.firing.get(finding.key), usual_attempt_ms(c, message)
    if usual_ms is None or (known is not None and known.was_announced):
        return finding
    summary = f"{finding.summary} So far, {may_succeed(c, message, 'it', usual_ms)}."
    evidence = {**finding.evidence, "usual_limit_s": seconds(usual_ms), "summary": summary}
    return replace(finding, severity="info", evidence=evidence, alerting=False)


def _unlimited(c: Context) -> str:
    """Describe what is known of the limit of receives of a queue that reports none."""
    if c.name.system == "aws_sqs" and reports_no_dead_letter_queue(c.summary.attributes):
        return "there is no receive limit: it comes back until its retention runs out"
    return "its receive limit is unknown"


def _unread(c: Context, suspects: list[MessageView]) -> set[str]:
    """Return the poison suspects that only waited in a prefetch window, whatever the broker counts: the first was worked on.

    A consumer that is killed gives back all of its window, and the broker counts a delivery of each. While a consumer finishes
    others, those that it took ahead wait for their turn. The signal about the first explains those about them.
    """
    waited: set[str] = set()
    first: dict[str, MessageView] = {}
    taken_again = False
    for message in suspects:
        consumer, is_held = message.consumer, message.state == "in_flight"
        if consumer is None or not has_window(c, consumer):
            continue
        waited.add(message.message_id)
        taken_again |= is_held
        if is_held and c.summary.consumer_acks.get(consumer, 0) > (message.last_received_at_ms or 0):
            continue
        window = consumer if is_held else ""
        if window not in first or message.sent_at_ms < first[window].sent_at_ms:
            first[window] = message
    if taken_again:
        # The others follow in a moment.
        first.pop("", None)
    return waited - {message.message_id for message in first.values()}


def _what_follows(c: Context) -> str:
    """Describe what happens to a message whose receives are used up."""
    if c.dead_letter_queue:
        return f"it moves to {c.dead_letter_queue} next"
    if reports_no_dead_letter_queue(c.summary.attributes):
        return "it is lost next: there is no dead-letter queue"
    return "it moves to a dead-letter queue next, or is lost"


def _crossed_at(message: MessageView, receives: int) -> int:
    """Return the time of the receive that made it a suspect, as far as it was seen."""
    times = [a.at_ms for a in message.attempts if a.what == "received" and a.receive_count >= receives]
    return min(times) if times else message.last_received_at_ms or message.sent_at_ms


def _who(message: MessageView) -> dict[str, Any]:
    about = {"consumer": message.consumer, "group": message.group, "last_received_at": message.last_received_at_ms}
    return {name: value for name, value in about.items() if value is not None}


def message_held_too_long(c: Context) -> Iterator[Finding]:
    """In flight without a break, extended again and again, for longer than max(5 x visibility timeout, 15 min).

    A message in a prefetch window waits for its turn while its consumer goes on finishing others: its limit is at least twice the
    99th percentile of holds.
    """
    if c.messages("held") and acknowledgements_are_unseen(c):
        return
    for message in c.messages("held"):
        since = message.held_since_ms or message.sent_at_ms
        held = measures.hold(since, c.now, c.summary, c.settings)
        if message.consumer in unconfirmed(c) or waits_for_its_turn(c, message.consumer, held.value, held.limit):
            continue
        extensions = sum(1 for a in message.attempts if a.what == "extended" and a.at_ms >= since)
        # A timeline that is full may have lost extensions.
        all_kept = len(message.attempts) < c.settings.attempts_per_message
        extended = ""
        if c.visibility_ms is not None:
            extended = f" ({at_least(exact=all_kept)}{plural(extensions, 'extension')})"
        held_by = f" by {message.consumer}" if message.consumer else ""
        evidence: dict[str, Any] = {
            "held_s": seconds(held.value),
            "limit_s": seconds(held.limit),
            "receive_count": message.receive_count,
            "extensions": extensions,
            "extensions_exact": all_kept,
            **_who(message),
        }
        if message.invisible_until_ms is not None:
            evidence["invisible_until"] = message.invisible_until_ms
        # A change of the visibility that delays a retry looks like one that a long job needs.
        went_on = c.visibility_ms is not None and c.summary.consumer_acks.get(message.consumer or "", 0) > since
        cause = "its consumer may be hung"
        if went_on:
            cause += " or delaying a retry; it has finished other messages since"
        evidence["summary"] = (
            f"Message {message.message_id} has been held{held_by} for {duration_ms(held.value)}{extended}: {cause}."
        )
        who = [message.consumer]
        yield c.finding("MessageHeldTooLong", "warning", since, evidence, blamed=who, message_id=message.message_id)
