"""Determine a queue's basis of knowledge from what arrives, never from a setting.

`messages`: sends, deliveries and ends are reported, and the broker's counts agree (or there are none). `consumers`: deliveries
and ends, no sends. `producers`: sends only. `partial`: some of everything. `counts`: the broker's counts only. `unknown`:
nothing recent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from streaming.core.reporting.report import AGE_SCOPES, OrderedQueueReport
from streaming.core.state.queues import Depth
from streaming.judge.history.history import AGE_TO_GAP
from streaming.judge.history.window import Window
from streaming.judge.knowledge.evidence import REPORTS_LAG_MS, Evidence
from streaming.judge.knowledge.windows import no_ends_reported

if TYPE_CHECKING:
    from streaming.judge.context import Context

Basis = Literal["messages", "consumers", "producers", "partial", "counts", "unknown"]
BASES: tuple[Basis, ...] = get_args(Basis)

SIDES_MS = 900_000
"""The period of events that shows which sides report."""
MOST_UNSENT_RATIO = 0.1
"""With instrumented producers, at most this share of delivered or ended messages may lack a reported send."""
FEWEST_SENDS_RATIO = 0.1
FEWEST_COUNTED = 20
FEWEST_PASSED = 4
"""The fewest younger messages received before the oldest waiting one: chance and best-effort order explain fewer."""
MOST_GONE_UNSEEN_RATIO = 0.02
"""In an ordered queue, this share of the messages may turn out to be gone: a consumer that is killed loses its last reports."""
OVERTAKEN_MS = 15_000
"""A group's head was overtaken if a message sent that much later was received: its own receive would be reported by then."""
PASSED_OVER_KEPT_MS = 60_000
"""A passed-over group is visible only while one of its messages is in flight, so it is remembered for this long."""
CHANGED_RATIO = 0.1
"""So much less is seen now than in the latest counts together: less is reported than before."""
QUIET_MS = 3_600_000
"""Message events older than this do not show who is instrumented now."""


@dataclass(frozen=True, slots=True)
class BasisReason:
    """The basis of knowledge, the reason for it, and what would improve it (empty when nothing is missing)."""

    basis: Basis
    why: str
    next_step: str


class Sides(NamedTuple):
    """Which kinds of events arrive from a queue."""

    sends: bool
    """Sends, or moves into the queue."""
    deliveries: bool
    """Deliveries or ends."""
    unsent_ratio: float | None
    """Share of recently delivered or ended messages without a reported send; None when there were none."""
    ends: bool = True
    """False: many messages were delivered, none was ever reported deleted, and they do not come back."""


class Signs(NamedTuple):
    """What a queue's basis follows from, beside the evidence of its counts."""

    sides: Sides
    counts_fresh: bool
    """The broker's latest counts are current."""
    messages_seen: bool
    """Messages are reported at all."""
    passed_over: bool
    """Messages that seem to wait were passed over."""
    went_unseen: bool
    """Many messages turned out to be gone."""
    left_out: bool
    """Messages are not tracked for want of room."""
    shown_again: bool
    """Consumers worked for as long as the counts must agree after a contradiction. In a backlog that only grows, what unseen
    consumers took before becomes too small a part to be noticed, also while all of them receive and fail."""
    stands: bool
    """Nothing was taken from the backlog for as long as the counts must agree, or the basis is `messages` already."""
    dead_letters: bool
    """It is a dead-letter queue, which needs no consumer."""
    unseen_moves: str = ""
    """Which moves to a dead-letter queue are probably missing, in words: see `unseen_moves`."""
    coverage_ratio: float | None = None
    """The share of the counted messages that is tracked, if it has been off for long: of now, unlike the sums over the counts."""


def sides(past: Window, now: int) -> Sides:
    """Return what arrived recently or, if nothing did, at any time."""
    if not len(past):
        return Sides(False, False, None)
    before = max(past.last_before(now - SIDES_MS), 0)
    ever_sent, ever_touched = past.value("sent", -1) + past.value("arrived", -1), past.value("touched", -1)
    sent = ever_sent - past.value("sent", before) - past.value("arrived", before)
    touched = ever_touched - past.value("touched", before)
    unsent = past.value("touched_unsent", -1)
    if touched:
        unsent -= past.value("touched_unsent", before)
    else:
        # A quiet or new queue: use everything known about it.
        touched = ever_touched
    deliveries = touched > 0 if sent else ever_touched > 0
    unsent_ratio = max(unsent, 0) / touched if touched > 0 else None
    return Sides(bool(sent) or ever_sent > 0, deliveries, unsent_ratio, not no_ends_reported(past))


def passed_over(past: Window, came_back: int, late_ms: int, free_at: int = 0) -> bool:
    """Whether several younger messages passed over the oldest one that seems to wait: an unseen consumer may have it.

    `came_back` is the send time of the oldest visible message that was received before: such a message waits for its next turn.
    `free_at`: since when one of them could have been received. A message sent with a delay is not passed over before.
    """
    oldest = past.value("oldest_visible_at", -1) if len(past) else 0
    return came_back > oldest > 0 and _were_received_since(past, max(oldest, free_at), late_ms)


def head_passed_over(past: Window, ordered: OrderedQueueReport, latest: Depth | None, late_ms: int) -> bool:
    """Whether messages of other groups passed over the oldest head that could be received and never was.

    Groups may overtake each other, but brokers serve them about in order of arrival. So several younger messages show it, and one
    that was sent much later if the latest count shows nothing visible.
    """
    waiting = [(g, g.head) for g in ordered.oldest if not g.in_flight and g.head is not None and g.head.state == "visible"]
    never = [(group, head) for group, head in waiting if not head.receive_count]
    if not never:
        return False
    oldest = min(head.sent_at_ms for _, head in never)
    free_at = min(max(head.sent_at_ms, group.last_settled_at) for group, head in never)
    uncounted = latest is not None and latest.visible == 0 and latest.at > free_at
    overtaken = uncounted and ordered.youngest_received_sent_at - free_at > OVERTAKEN_MS
    return overtaken or (len(past) > 0 and _were_received_since(past, oldest, late_ms))


def _were_received_since(past: Window, oldest: int, late_ms: int) -> bool:
    """Whether several messages were received that were sent later than `oldest`.

    `late_ms`: how late reports may be, so that the send may have become known only then.
    """
    received = past.value("touched", -1) - past.value("touched_unsent", -1)
    # Sends between two samples may have happened in any order: half of them are allowed for.
    known_at = oldest + min(max(late_ms, 0), REPORTS_LAG_MS)
    i = past.last_before(known_at)
    after = min(i + 1, len(past) - 1)
    then, soon = past.value("sent", max(i, 0)), past.value("sent", after)
    between_ms = past.times[after] - past.times[max(i, 0)]
    reached = (soon - then) / between_ms * (known_at - past.times[i]) + then if between_ms else float(then)
    before = reached + (soon - past.value("sent", max(after - 1, 0))) / 2
    return received - before > max(FEWEST_PASSED, 0.1 * received)


def many_went_unseen(c: Context) -> bool:
    """Whether many messages of an ordered queue turned out to be gone lately: consumers that do not report have them."""
    gone = _went_unseen(c)
    if gone <= FEWEST_PASSED:
        return False
    return gone > MOST_GONE_UNSEEN_RATIO * c.samples_of(SIDES_MS).change("received", c.now - SIDES_MS)


def some_went_unseen(c: Context) -> bool:
    """Whether any message of an ordered queue turned out to be gone lately."""
    return _went_unseen(c) > 0


def many_receives_are_unseen(c: Context) -> bool:
    """Whether receives of some consumers are not reported, in a queue without counts, where nothing else can show it.

    A receive count that jumps shows a delivery that nobody reported. A consumer that is killed loses its last reports. What
    seemed to wait by then stays in doubt for as long as it seems to wait.
    """
    if c.memory.evidence.has_counts() or not c.summary.total("unseen_receives"):
        return False
    if c.memory.basis == "partial" and c.summary.oldest[AGE_SCOPES.index("visible")] <= c.memory.basis_since:
        return True
    samples, since = c.samples_of(SIDES_MS), c.now - SIDES_MS
    unseen = samples.change("unseen_receives", since)
    return unseen > FEWEST_PASSED and unseen > MOST_GONE_UNSEEN_RATIO * samples.change("received", since)


def unseen_receives_slide(c: Context) -> bool:
    """Whether time alone may change `many_receives_are_unseen`: enough of them are within its period, or were a while ago."""
    if c.memory.evidence.has_counts() or not c.summary.total("unseen_receives"):
        return False
    # Older samples are further apart, and more so with age: another look may begin with an earlier one.
    samples = c.samples_of(SIDES_MS + SIDES_MS // AGE_TO_GAP)
    return samples.value("unseen_receives", -1) - samples.value("unseen_receives", 0) > FEWEST_PASSED


def _went_unseen(c: Context) -> int:
    if not len(c.recent) or c.recent.value("settled", -1) == c.recent.value("departed", -1):
        # None ever did, in most queues: their older samples need not be read.
        return 0
    samples, since = c.samples_of(SIDES_MS), c.now - SIDES_MS
    return samples.change("settled", since) - samples.change("departed", since)


def basis_of(e: Evidence, signs: Signs, name: str, now: int) -> BasisReason:
    """Return the basis of the queue called `name` by the first rule that applies."""
    seen = signs.sides
    consumers = "instrument what empties it, if anything does" if signs.dead_letters else f"instrument the consumers of {name}"
    # 1. "Where no messages are reported, the broker's counts are all there is."
    if not signs.messages_seen:
        if signs.counts_fresh:
            return BasisReason("counts", "only the broker's counts are reported", consumers)
        return BasisReason("unknown", "nothing is reported any more", f"start a collector, or {consumers}")
    few_sends = seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO
    # 2. "Where nothing contradicts that everything is reported, it is."
    # Before the first delivery, sends and counts agree by chance as long as there are few, and until a burst is received.
    # Messages in flight, of which no delivery was ever reported, show consumers that do not report.
    counted = e.counted_sum + e.visible_sum >= FEWEST_COUNTED and e.tracked.is_long(now) and not e.in_flight_sum
    counted &= signs.stands
    # That nothing is received from a dead-letter queue is no sign that a consumer is missing: one count of its messages will do.
    counted |= signs.dead_letters and e.counted_sum + e.visible_sum > 0 and e.tracked.agreed > 0
    demonstrated = seen.deliveries or counted
    # Early on, unseen consumers are not ruled out either: few counts agree by chance, and they may be a minute old.
    early = e.seen_at > 0 and not e.tracked.is_long(now)
    holds = e.tracked.holds(now) and (signs.shown_again or not e.tracked.contradicted_at)
    agree = demonstrated and (holds or not e.was_compared()) and not (early and signs.passed_over)
    all_there = not signs.went_unseen and not signs.left_out
    if not few_sends and seen.sends and seen.ends and all_there and (agree or not e.has_counts()):
        return _agreement(signs, name)
    # 3. "Deliveries without their sends: the producers are missing."
    if few_sends and (not seen.sends or (seen.unsent_ratio or 0) > 1 - FEWEST_SENDS_RATIO):
        if not seen.ends:
            return BasisReason("consumers", f"sends and deletions of {name} are not seen", _DELETIONS.format(name))
        if signs.dead_letters:
            return BasisReason("consumers", signs.unseen_moves or f"moves to {name} are not seen", "")
        return BasisReason("consumers", f"sends of {name} are not seen", "instrument its producers")
    # 4. "Sends without any later event: the consumers are missing."
    if seen.sends and not seen.deliveries:
        if signs.unseen_moves and signs.dead_letters:
            return BasisReason("producers", signs.unseen_moves, "")
        next_step = "instrument what empties it, if anything does" if signs.dead_letters else "instrument its consumers"
        return BasisReason("producers", f"deliveries and deletions of {name} are not seen", next_step)
    # 5. "The rest is seen in part."
    if signs.left_out:
        return BasisReason(
            "partial",
            f"some messages of {name} are left out: as many are tracked as judge.max_messages_per_shard, 1 GiB of ids, or 256 "
            "MiB of names of groups allow",
            "raise judge.max_messages_per_shard if the workers have the memory, or drain the backlog",
        )
    if signs.unseen_moves and seen.ends and (signs.dead_letters or not few_sends):
        return BasisReason("partial", signs.unseen_moves, "")
    if seen.deliveries or seen.sends:
        return BasisReason("partial", _missing(e, seen, name, signs.coverage_ratio), _next_step(e, seen, name))
    return BasisReason("counts" if signs.counts_fresh else "unknown", "no message was reported lately", consumers)


def with_unseen_moves(source: str) -> BasisReason:
    """Return the basis of a dead-letter queue without counts that gets messages from a queue which is seen in part."""
    why = f"not all deliveries of {source} are seen, so some of its moves may be missing"
    step = f"start a collector, which counts the dead letters, or instrument the remaining consumers of {source}"
    return BasisReason("partial", why, step)


def without_receives(reason: BasisReason, name: str) -> BasisReason:
    """Return the same basis, with the words that receives are missing as well."""
    step = "instrument the receives of its consumers"
    next_step = f"{reason.next_step}; {step}" if reason.next_step else step
    return BasisReason(reason.basis, f"{reason.why}; receives of {name} are not seen", next_step)


def for_activemq(reason: BasisReason) -> BasisReason:
    """Return the same basis for ActiveMQ: its applications stay as they are, and what is not seen its broker does not send."""
    if "instrument" not in reason.next_step:
        return reason
    if reason.basis == "unknown":
        return BasisReason(reason.basis, reason.why, "start the collector, or see its log")
    condition = "if it has consumers, " if reason.basis == "producers" else ""
    step = f"{condition}run queuewatch doctor activemq: it names the advisories that the broker does not send"
    return BasisReason(reason.basis, reason.why, step)


def _agreement(signs: Signs, name: str) -> BasisReason:
    if signs.counts_fresh:
        return BasisReason("messages", "sends and ends are seen, and the broker's counts agree", "")
    if signs.sides.deliveries:
        return BasisReason("messages", "sends and ends are seen; no broker count contradicts this", "")
    why = "only sends are seen; no broker count contradicts that nobody has received them"
    return BasisReason("messages", why, f"start a collector: it shows whether {name} has consumers that do not report")


_DELETIONS = "instrument the deletions of {}: only deliveries by its consumers are reported"


def _missing(e: Evidence, seen: Sides, name: str, coverage_ratio: float | None) -> str:
    if not seen.ends:
        return f"deletions of {name} are not seen"
    if seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO:
        return f"sends of {seen.unsent_ratio:.0%} of the messages of {name} are not seen"
    if e.tracked_sum < e.counted_sum:
        part = e.tracked_sum / e.counted_sum if e.counted_sum else 0.0
        if coverage_ratio is not None and coverage_ratio < part - CHANGED_RATIO:
            part = coverage_ratio
        return f"about {part:.0%} of the messages the broker counts are seen"
    return f"ends of some messages of {name} are not seen"


def _next_step(e: Evidence, seen: Sides, name: str) -> str:
    if not seen.ends:
        return _DELETIONS.format(name)
    if seen.unsent_ratio is not None and seen.unsent_ratio > MOST_UNSENT_RATIO:
        return f"instrument the remaining producers of {name}"
    if e.tracked_sum < e.counted_sum:
        return f"switch sampling off, or instrument the remaining producers and consumers of {name}"
    return f"instrument the remaining consumers of {name}"
