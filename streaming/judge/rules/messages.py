"""Signals about single messages: poison, held too long, dead letters, losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import nlargest
from typing import Any

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.reporting.report import RETENTION_RAN_OUT, Arrival, Loss, Rank
from streaming.core.reporting.views import MessageView
from streaming.core.state.queues import DEFAULT_DELIVERIES, Depth, known_retention_s, reports_no_dead_letter_queue
from streaming.judge import measures
from streaming.judge.broker_counts import COUNT_ERROR_RATIO
from streaming.judge.conditions import once
from streaming.judge.context import Context
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.knowledge.unconfirmed_holds import unconfirmed
from streaming.judge.rules.prefetched import has_window, waits_for_its_turn
from streaming.judge.signals import Finding
from streaming.judge.words import duration_ms, plural, seconds


def poison_message(c: Context) -> Iterator[Finding]:
    """Unsettled and received at least min(3, max(2, max_receive_count)) times: the message keeps coming back."""
    limit = c.max_receive_count
    unread = _unread(c)
    for message in c.messages("poison"):
        count = message.receive_count
        evidence: dict[str, Any] = {
            "receive_count": count,
            "threshold_receives": c.poison_receives,
            "age_s": seconds(c.now - message.sent_at_ms),
            "state": message.state,
        }
        if limit is None:
            limit_words = _unlimited(c)
        else:
            left = max(0, limit - count)
            evidence |= {"max_receive_count": limit, "receives_left": left, "final_attempt": left == 0}
            limit_words = f"{plural(left, 'receive')} left" if left else f"this was the final attempt; {_what_follows(c)}"
        if reports_no_dead_letter_queue(c.summary.attributes):
            evidence["has_dead_letter_queue"] = False
        evidence |= _who(message)
        refused = message.refused_settlements
        too_late = ""
        if refused:
            evidence["refused_settlements"] = refused
            times = plural(refused, "time")
            too_late = f". Its deletion was refused {times}: the work takes longer than the {c.visibility_window}"
        evidence["summary"] = (
            f"Message {message.message_id} was received {count} times and never deleted, "
            f"{duration_ms(c.now - message.sent_at_ms)} after it was sent; {limit_words}{too_late}."
        )
        finding = c.finding(
            "PoisonMessage", "warning", _crossed_at(message, c.poison_receives), evidence, message_id=message.message_id
        )
        yield replace(finding, folded="PoisonMessage") if message.message_id in unread else finding


def _unlimited(c: Context) -> str:
    """Describe what is known of the limit of receives of a queue that reports none."""
    if c.name.system == "aws_sqs" and reports_no_dead_letter_queue(c.summary.attributes):
        return "there is no receive limit: it comes back until its retention ends"
    return "its receive limit is unknown"


def _unread(c: Context) -> set[str]:
    """Return the poison suspects that only waited in a prefetch window, whatever the broker counts: the first was worked on.

    A consumer that is killed gives back all of its window, and the broker counts a delivery of each. While a consumer finishes
    others, those that it took ahead wait for their turn. The signal about the first explains those about them.
    """
    waited: set[str] = set()
    first: dict[str, MessageView] = {}
    taken_again = False
    for message in c.messages("poison"):
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
    for message in c.messages("held"):
        since = message.last_received_at_ms or message.sent_at_ms
        held = measures.hold(since, c.now, c.summary, c.settings)
        if message.consumer in unconfirmed(c) or waits_for_its_turn(c, message.consumer, held.value, held.limit):
            continue
        extensions = sum(1 for a in message.attempts if a.what == "extended" and a.at_ms >= since)
        # A timeline that is full may have lost extensions.
        all_kept = len(message.attempts) < c.settings.attempts_per_message
        extended = ""
        if c.visibility_ms is not None:
            extended = f" ({'' if all_kept else 'at least '}{plural(extensions, 'extension')})"
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


def dead_letter_arrived(c: Context) -> Iterator[Finding]:
    """A message arrived in this dead-letter queue; each arrival is its own finding, and all end 5 min after the last."""
    if not c.arrivals and not c.firing:
        return
    quiet_ms = int(c.thresholds.dead_letter_quiet_s * 1000)
    # Shards report arrivals for as long as events may be late; a longer burst is remembered by its firing signals.
    found = {f.key: f for f in c.firing_here("DeadLetterArrived")}
    firing = list(found.values())
    quiet_ids = set(counted_arrivals(c).quiet_ids)
    for arrival in c.arrivals:
        if arrival.message_id in quiet_ids:
            # It was announced when the queue's depth rose; its id became known only now.
            continue
        part, evidence = _which_arrival(arrival, firing), _arrival(c, arrival)
        finding = c.finding("DeadLetterArrived", "warning", arrival.at, evidence, message_id=arrival.message_id, part=part)
        # One that is not new and no longer fires was announced, and has ended; a later arrival does not bring it back.
        if finding.key in found or c.now - _quiet_from(finding, "arrived_at") < quiet_ms:
            found[finding.key] = finding
    newer = c.now
    for finding in _latest(c, (f for f in found.values() if f.key.message_id is not None), "arrived_at"):
        quiet_from = _quiet_from(finding, "arrived_at")
        if newer - quiet_from >= quiet_ms:
            return
        newer = min(newer, quiet_from)
        yield finding


def _latest(c: Context, findings: Iterable[Finding], happened: str) -> list[Finding]:
    """Return the latest `messages_per_queue` findings, latest first."""

    def order(finding: Finding) -> tuple[int, str, str]:
        return _quiet_from(finding, happened), finding.key.message_id or "", finding.key.part or ""

    return nlargest(c.settings.messages_per_queue, findings, key=order)


def _quiet_from(finding: Finding, happened: str) -> int:
    """Return the time from which the quiet after a finding counts."""
    return int(finding.evidence.get("noticed_at", finding.evidence[happened]))


def _noticed(happened_at: int, rank: Rank) -> dict[str, Any]:
    """Return evidence for an event that became known only after its signal would have ended."""
    return {} if rank[0] == happened_at else {"noticed_at": rank[0]}


def _which_arrival(arrival: Arrival, firing: Iterable[Finding]) -> str | None:
    """Return None for a message's first arrival, `2`, `3`… for each return after a redrive under its own id.

    A later time is not always that of another arrival. An inferred one may get any better known time. One that was seen at its
    first receive may get that of the report of its move, by a clock that is ahead. A reported one is not dated anew.
    """
    known = [f for f in firing if f.key.message_id == arrival.message_id]
    if not known:
        return None
    latest = max(known, key=lambda f: int(f.evidence["arrived_at"]))
    before, later_ms = latest.evidence["known_by"], arrival.at - latest.evidence["arrived_at"]
    if before in (arrival.known_by, "event"):
        again = later_ms > 0
    else:
        again = before == "first_receive" and later_ms > CLOCKS_DIFFER_MS
    return str(len(known) + 1) if again else latest.key.part


def _arrival(c: Context, arrival: Arrival) -> dict[str, Any]:
    known_by = {
        "event": "the move was reported",
        "first_receive": "seen at its first receive there",
        "inferred": "inferred: its receives were used up and it is no longer in its source queue",
    }[arrival.known_by]
    if arrival.known_by == "inferred" and c.name.system in DEFAULT_DELIVERIES:
        known_by = "inferred: it was given back at its last delivery"
    evidence: dict[str, Any] = {
        "known_by": arrival.known_by,
        "arrived_at": arrival.at,
        **_noticed(arrival.at, arrival.rank),
        **_receives_of_dead_letter(arrival.receive_count),
        "dead_letters_now": _dead_letters_now(c),
    }
    if arrival.source:
        evidence["from_queue"] = arrival.source
    origin = f" from {arrival.source}" if arrival.source else ""
    evidence["summary"] = f"Message {arrival.message_id} arrived in {c.name.queue}{origin} ({known_by})."
    return evidence


def _receives_of_dead_letter(receives: int) -> dict[str, Any]:
    """Return evidence for a dead letter's receives, none if it is not known how often its source queue delivered it."""
    return {"receive_count": receives} if receives > 0 else {}


@once
def counted_arrivals(c: Context) -> CountedArrivals:
    """Return the dead letters known by this queue's depth, matched with those that messages reported."""
    known, latest = c.memory.counted_arrivals, _latest_count(c)
    if not c.is_dead_letter_queue:
        return known
    counted = replace(known)
    counted.report(c.summary.total("arrived"), sorted(c.arrivals, key=lambda arrival: arrival.rank))
    if latest is not None:
        counted.count(latest, c.now)
    counted.announce(c.now, int(c.thresholds.dead_letter_quiet_s * 1000))
    return counted


def _latest_count(c: Context) -> Depth | None:
    """Return the broker's latest count, also one that does not say how much of it is in flight (Cloudflare)."""
    latest = c.summary.depths[-1] if c.summary.depths else None
    at, visible = c.summary.attributes.get("visible", (0, None))
    if isinstance(visible, int) and (latest is None or latest.at < at) and c.summary.attribute("in_flight") is None:
        return Depth(at, visible, 0, -1)
    return latest


def dead_letters_counted(c: Context) -> Iterator[Finding]:
    """The depth of this dead-letter queue rose with no message reporting it: at least that many arrived.

    Messages reported later are matched to these and not announced again.
    """
    known = counted_arrivals(c)
    at_least = known.shown
    if not c.is_dead_letter_queue or not at_least:
        return
    # What an earlier release announced has neither.
    arrived_at, depth = known.shown_at or known.at, known.shown_depth or known.depth
    evidence = {
        "known_by": "counts",
        "at_least": at_least,
        "arrived_at": arrived_at,
        "dead_letters_now": known.depth,
        "summary": (
            f"At least {plural(at_least, 'message')} arrived in {c.name.queue}: its depth rose to {depth} "
            "and no event reported the arrival."
        ),
    }
    yield c.finding("DeadLetterArrived", "warning", known.at, evidence, part=f"counted-{known.at}")


def _dead_letters_now(c: Context) -> int:
    """Return how many messages are known to be in this dead-letter queue: tracked there, or counted by the broker."""
    return max(c.summary.numbers["dead_letters"], sum(c.broker_counts.values()))


def dead_letter_expiring(c: Context) -> Iterator[Finding]:
    """The dead letter that expires first has less than min(24 h, a quarter of retention) left.

    On standard SQS queues retention runs from the original send; on FIFO queues from the move. Where some of them may be gone,
    see `expires_by`. A retention that is only assumed pages nobody.
    """
    expires_at = expires_by(c)
    if expires_at is None:
        return
    left = measures.expiry(expires_at, c.now, c.summary, c.settings)
    if not left.reached:
        return
    gone, assumed = _may_be_gone(c), known_retention_s(c.summary, c.settings) is None
    first = next((m for m in c.messages("dead_letter") if m.expires_at_ms == expires_at and not gone), None)
    evidence: dict[str, Any] = {
        "time_left_s": seconds(left.value),
        "expires_at": expires_at,
        "retention_s": seconds(c.retention_ms),
        "dead_letters_now": c.summary.numbers["dead_letters"] - gone,
        "clock": "arrival" if c.ordered else "original send",
    }
    if assumed:
        evidence["retention_assumed"] = True
    if first is not None:
        evidence["message_id"] = first.message_id
    which = f"Message {first.message_id}" if first is not None else "A message" if gone else "The oldest message"
    latest, others = "", ""
    if gone:
        evidence["may_be_gone"] = gone
        latest, others = " at the latest", f" {plural(gone, 'older message')} may be gone."
    kept = f": its retention of {duration_ms(c.retention_ms)} runs"
    if assumed:
        kept = f" if its retention is the default of {duration_ms(c.retention_ms)} (not reported), which runs"
    evidence["summary"] = (
        f"{which} of dead-letter queue {c.name.queue} will be lost in {duration_ms(left.value)}{latest}{kept} "
        f"from its {evidence['clock']}.{others}"
    )
    yield c.finding("DeadLetterExpiring", "warning" if assumed else "critical", expires_at - int(left.limit), evidence)


@once
def expires_by(c: Context) -> int | None:
    """Return by when a dead letter expires (epoch milliseconds); None where none is known to be left.

    Of those that are tracked, the broker may count fewer: the first ones may have been received unseen, but not more than are
    missing. So one of them is the next one, or expires before it. Where more are missing than are listed, that is the last one.
    """
    if not c.summary.numbers["dead_letters"]:
        return None
    gone = _may_be_gone(c)
    if not gone:
        return c.summary.numbers["expires_at"]
    if gone >= c.summary.numbers["dead_letters"]:
        return None
    listed = c.messages("dead_letter")
    return listed[gone].expires_at_ms if gone < len(listed) else c.summary.numbers["expires_last"]


@once
def _may_be_gone(c: Context) -> int:
    """Return how many of the tracked dead letters may have been received unseen, by the broker's count."""
    counted = sum(c.broker_counts.values())
    if not c.broker_counts or counted >= (1 - COUNT_ERROR_RATIO) * c.tracked:
        return 0
    return c.tracked - max(counted - counted_arrivals(c).untracked, 0)


def message_dropped(c: Context) -> Iterator[Finding]:
    """A message was dropped (retries used up, no dead-letter queue) or expired unprocessed."""
    if not c.summary.losses and not c.firing:
        return
    quiet_ms = int(c.thresholds.dropped_quiet_s * 1000)
    # A loss is reported for as long as events may be late, and at least once; its signal may last longer.
    found = {f.key: f for f in c.firing_here("MessageDropped") if not _is_disproved(c, f)}
    for loss in c.summary.losses:
        if loss.reason == RETENTION_RAN_OUT and c.basis != "messages":
            # It may have been received unseen long ago.
            continue
        finding = c.finding("MessageDropped", "critical", loss.at, _lost(c, loss), message_id=loss.message_id)
        found[finding.key] = finding
    for finding in _latest(c, found.values(), "lost_at"):
        if c.now - _quiet_from(finding, "lost_at") < quiet_ms:
            yield finding


def _is_disproved(c: Context, lost: Finding) -> bool:
    """Whether a message was not lost after all: it was delivered again, or processed or moved, so it is reported no more."""
    losses = c.summary.losses
    still_reported = _quiet_from(lost, "lost_at") > c.now - c.settings.lateness_ms and len(losses) < c.settings.messages_per_queue
    return still_reported and all(loss.message_id != lost.key.message_id for loss in losses)


def _lost(c: Context, loss: Loss) -> dict[str, Any]:
    rank, at, message_id, kind, reason, receives, sent_at = loss
    known = _receives_of_dead_letter(receives) if c.is_dead_letter_queue else {"receive_count": receives}
    evidence: dict[str, Any] = {
        "kind": kind,
        **known,
        "age_s": seconds(at - sent_at),
        "lost_at": at,
        **_noticed(at, rank),
    }
    if reason:
        evidence["reason"] = reason
    how = "expired" if kind == "expired" else "was dropped"
    why = f" ({_in_words(reason)})" if reason else ""
    after = f" after {plural(receives, 'receive')}" if known else ""
    # In an ordered dead-letter queue, retention and age count from the move.
    began = "it arrived" if c.is_dead_letter_queue and c.ordered else "it was sent"
    evidence["summary"] = f"Message {message_id} {how} unprocessed{why}{after}, {duration_ms(at - sent_at)} after {began}."
    return evidence


def _in_words(reason: str) -> str:
    """Return the reason for a loss. A Worker reports the retry that was one too many: `retry`, or `retry; delivery 4 of 4`."""
    first, *rest = reason.split(";")
    return ";".join(["its retries ran out", *rest]) if first == "retry" else reason
