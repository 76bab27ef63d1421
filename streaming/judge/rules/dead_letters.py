"""Signals about dead letters: that they arrive, and that they are about to expire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streaming.core.clock import CLOCKS_DIFFER_MS
from streaming.core.reporting.report import Arrival
from streaming.core.state.queues import DEFAULT_DELIVERIES, Depth, known_retention_s
from streaming.judge.broker_counts import COUNT_ERROR_RATIO
from streaming.judge.conditions.conditions import once
from streaming.judge.context import Context
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.findings import measures
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, plural, seconds
from streaming.judge.rules.quiet_time import latest_findings, noticed, quiet_from


def dead_letter_arrived(c: Context) -> Iterator[Finding]:
    """A message arrived in this dead-letter queue; each arrival is its own finding, and all end 5 min after the last."""
    # Shards report arrivals for as long as events may be late; a longer burst is remembered by its firing signals.
    found = {f.key: f for f in c.firing_here("DeadLetterArrived")}
    if not c.arrivals and not found:
        return
    quiet_ms = int(c.thresholds.dead_letter_quiet_s * 1000)
    firing: dict[str | None, list[Finding]] = {}
    for finding in found.values():
        firing.setdefault(finding.key.message_id, []).append(finding)
    quiet_ids = set(counted_arrivals(c).quiet_ids)
    for arrival in c.arrivals:
        if arrival.message_id in quiet_ids:
            # It was announced when the queue's depth rose; its id became known only now.
            continue
        part, evidence = _which_arrival(arrival, firing.get(arrival.message_id)), _arrival(c, arrival)
        finding = c.finding("DeadLetterArrived", "warning", arrival.at, evidence, message_id=arrival.message_id, part=part)
        # One that is not new and no longer fires was announced, and has ended; a later arrival does not bring it back.
        if finding.key in found or c.now - quiet_from(finding, "arrived_at") < quiet_ms:
            found[finding.key] = finding
    newer = c.now
    named = (f for f in found.values() if f.key.message_id is not None)
    for finding in latest_findings(named, "arrived_at", c.merged.arrivals_per_queue):
        quiet_since = quiet_from(finding, "arrived_at")
        if newer - quiet_since >= quiet_ms:
            return
        newer = min(newer, quiet_since)
        yield finding


def _which_arrival(arrival: Arrival, known: list[Finding] | None) -> str | None:
    """Return None for a message's first arrival, `2`, `3`… for each return after a redrive under its own id.

    `known`: what fires about its arrivals.
    A later time is not always that of another arrival. An inferred one may get any better known time. One that was seen at its
    first receive may get that of the report of its move, by a clock that is ahead. A reported one is not dated anew.
    """
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
        **noticed(arrival.at, arrival.rank),
        **receives_of_dead_letter(arrival.receive_count),
        "dead_letters_now": _dead_letters_now(c),
    }
    if arrival.source:
        evidence["from_queue"] = arrival.source
    origin = f" from {arrival.source}" if arrival.source else ""
    evidence["summary"] = f"Message {arrival.message_id} arrived in {c.name.queue}{origin} ({known_by})."
    return evidence


def receives_of_dead_letter(receives: int) -> dict[str, Any]:
    """Return evidence for a dead letter's receives, none if it is not known how often its source queue delivered it."""
    return {"receive_count": receives} if receives > 0 else {}


@once
def counted_arrivals(c: Context) -> CountedArrivals:
    """Return the dead letters known by this queue's depth, matched with those that messages reported."""
    if not c.is_dead_letter_queue:
        return c.memory.counted_arrivals
    counted, latest = replace(c.memory.counted_arrivals), _latest_count(c)
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
    if first is not None and not first.sent_known:
        # Its retention began before its first event.
        evidence["time_left_exact"] = False
        latest = " at the latest"
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
