"""The core and the reference model agree for any lifecycles, order and repetition of events, over any number of shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.core.reporting.merge import Merged
from streaming.core.reporting.report import AGE_SCOPES, StuckGroup
from streaming.core.settings import Settings
from streaming.core.state.queues import NEVER, TOTALS
from streaming.core.thresholds import Thresholds
from tests.core.driving import T0, event, run_steps
from tests.core.reference import Model, Wire

VISIBILITY_MS = {"orders": 30_000, "dead": 30_000, "payments.fifo": 20_000, "dead.fifo": 30_000, "retry": 30_000}
WINDOWS_OF_ACTIVEMQ = dict.fromkeys(("grouped", "jobs", "DLQ.grouped", "DLQ.jobs"), NEVER)
MAX_RECEIVES = {"orders": 4}
DEAD_LETTER_QUEUES = {"orders": "dead"}
LATEST_MS = 290_000
"""All is reported at time 0, and what is dated more than five minutes ahead is taken for an error of the sender's clock."""
END_MS = 500_000
_STANDARD = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "dead"}
_FIFO = {"kind": "fifo", "visibility_timeout_s": 20, "dead_letter_queue": "dead.fifo"}
STATES = [
    event("queue_state", 0, "orders", attributes=_STANDARD),
    event("queue_state", 0, "payments.fifo", attributes=_FIFO),
]
SEEN_IN_DEAD_LETTER_QUEUE = "seen in its dead-letter queue"
"""Nothing but a receive there shows that a message was moved, and it does not name the source."""
ENDS_BEFORE_PURGES = ("deleted", "dead_lettered", "dropped", "expired", "lives")
"""What a purge removed from a queue that was not yet known to be a dead-letter queue did not arrive there."""
ENDS = (*ENDS_BEFORE_PURGES, SEEN_IN_DEAD_LETTER_QUEUE)
KINDS_OF_ACTIVEMQ = {"grouped": "grouped", "jobs": "standard"}
OTHER_TIMEOUTS_S = (20, 30, 600, 900)
EXAMPLES = int(os.environ.get("QUEUEWATCH_EXAMPLES", "60"))


@st.composite
def lifecycles(draw: st.DrawFn, ends: Sequence[str] = ENDS) -> list[Wire]:
    """Return the lives of a few messages, each event once, in order."""
    events: list[Wire] = list(STATES)
    for n in range(draw(st.integers(1, 8))):
        events += [e for e in _life(draw, n, ends) if e["at"] <= T0 + LATEST_MS]
    return events


@st.composite
def redriven(draw: st.DrawFn) -> list[Wire]:
    """Return the lives of messages that were redriven to a live queue, each of which still names the queue it came from."""
    events = []
    for n in range(draw(st.integers(1, 4))):
        about = {"message_id": f"redriven-{n}", "from_queue": "elsewhere"}
        at = draw(st.integers(0, 150_000))
        for count in draw(st.lists(st.integers(1, 4), min_size=1, unique=True).map(sorted)):
            at += draw(st.integers(1, 40_000))
            events.append(event("received", at, "retry", receive_count=count, **about))
        if draw(st.booleans()):
            events.append(event("deleted", at + 1_000, "retry", message_id=about["message_id"]))
    return events


@st.composite
def sent_at_once(draw: st.DrawFn) -> list[Wire]:
    """Return a group of messages without positions that were sent in the same millisecond, no two of them received at once."""
    receives = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    events = []
    # One is never received.
    for n, times in enumerate(draw(st.permutations([0, *receives]))):
        about = {"message_id": f"{n}" * 9, "group": "a"}
        events.append(event("sent", 0, "payments.fifo", **about))
        for count in range(1, times + 1):
            at = draw(st.integers(1, 2_000)) * 10 + 25_000 * count + n
            events.append(event("received", at, "payments.fifo", receive_count=count, **about))
            if draw(st.integers(0, 3)) == 0:
                events.append(event("released", at + 5_000, "payments.fifo", **about))
    return events


@st.composite
def purges(draw: st.DrawFn) -> list[Wire]:
    """Return purges of the queues, at any time during the lives."""
    times = draw(st.lists(st.tuples(st.sampled_from(sorted(VISIBILITY_MS)), st.integers(0, 290_000)), max_size=4, unique=True))
    return [event("purged", at, queue) for queue, at in times]


@st.composite
def timeouts(draw: st.DrawFn) -> list[Wire]:
    """Return reports of other visibility timeouts, at any time during the lives.

    A queue's timeout changes once and is reported again and again, or changes at each of its reports. Between two reports that
    the timeout is back at an earlier value, only the broker's counts tell when it was first reported, and there are none here.
    """
    events = []
    for queue in sorted(VISIBILITY_MS):
        first = VISIBILITY_MS[queue] // 1000
        times = sorted(draw(st.lists(st.integers(1, 290_000), min_size=1, max_size=5, unique=True)))
        if draw(st.booleans()):
            changes_at, other = draw(st.sampled_from([0, *times])), draw(st.sampled_from(OTHER_TIMEOUTS_S))
            values = [other if at > changes_at else first for at in times]
        else:
            values = [first]
            for _ in times:
                values.append(draw(st.sampled_from([value for value in OTHER_TIMEOUTS_S if value != values[-1]])))
            del values[0]
        events += [
            event("queue_state", at, queue, attributes={"visibility_timeout_s": value})
            for at, value in zip(times, values, strict=True)
        ]
    return events


@st.composite
def by_other_clocks(draw: st.DrawFn, events: list[Wire]) -> list[Wire]:
    """Return the events with the deliveries, by their counts, and the ends dated by clocks that differ."""
    clocks = st.sampled_from([0, 0, -8_000, 5_000, 45_000, 59_000, 75_000])
    of_count, of_ends = draw(st.lists(clocks, min_size=3, max_size=3)), draw(clocks)
    out = []
    for e in events:
        ahead = 0
        if e["type"] in ("received", "extended", "released") and "receive_count" in e:
            ahead = of_count[e["receive_count"] % 3]
        elif e["type"] in ENDS:
            ahead = of_ends
        out.append(e | {name: e[name] + ahead for name in ("at", "invisible_until", "visible_at") if name in e})
    return out


def _life(draw: st.DrawFn, n: int, ends: Sequence[str]) -> list[Wire]:
    fifo = draw(st.booleans())
    queue, dead = ("payments.fifo", "dead.fifo") if fifo else ("orders", "dead")
    message_id = draw(st.sampled_from([f"00000000-0000-4000-8000-{n:012d}", f"zahlung-{n}-é\u2028", f"{n}" * 40]))
    about: dict[str, Any] = {"message_id": message_id}
    at = draw(st.integers(0, 150_000))
    if fifo:
        # Twenty digits do not fit 64 bits. Positions follow the order of sends: one that is lower than that of a message received
        # before shows that they begin again, and then it matters which was read first.
        about |= {"group": draw(st.sampled_from(["a", "b"])), "sequence": str(18849496460467696128 + 10 * at + n)}
    events = []
    if fifo or draw(st.booleans()):
        delayed = {"visible_at": T0 + at + 40_000} if draw(st.booleans()) else {}
        events.append(event("sent", at, queue, **about, **delayed))
    reported = {"sent_at": T0 + at} if draw(st.booleans()) else {}
    counted, number = draw(st.booleans()), {}
    # Of some consumers, only the calls that extend or give back messages are reported.
    reports_receives = draw(st.integers(0, 3)) > 0
    for count in range(1, draw(st.integers(0, 7)) + 1):
        at += draw(st.integers(1, 25_000))
        if counted and draw(st.integers(0, 5)) == 0:
            continue
        window = {"invisible_until": T0 + at + draw(st.integers(1, 60_000))} if draw(st.booleans()) else {}
        number = {"receive_count": count} if counted else {}
        consumer = {"consumer": f"worker-{count % 2}"} if draw(st.booleans()) else {}
        if reports_receives:
            events.append(event("received", at, queue, **about, **reported, **window, **number, **consumer))
        for _ in range(draw(st.sampled_from([0, 0, 0, 1] if reports_receives else [0, 1, 2, 3]))):
            at += draw(st.integers(1, 5_000 if reports_receives else 20_000))
            until = T0 + at + (30_000 if reports_receives else draw(st.sampled_from([5_000, 30_000])))
            events.append(event("extended", at, queue, **about, **number, invisible_until=until))
        if draw(st.integers(0, 3)) == 0:
            at += draw(st.integers(1, 5_000))
            later = {"visible_at": T0 + at + 9_000} if draw(st.booleans()) else {}
            events.append(event("released", at, queue, **about, **number, **later))
    at += draw(st.integers(1, 10_000))
    # Some brokers deliver a message again without saying so, and report only how often in the end.
    total = {"receive_count": draw(st.integers(1, 9))} if draw(st.booleans()) else {}
    return events + _end(draw, draw(st.sampled_from(ends)), at, queue, dead, about, total)


@st.composite
def activemq(draw: st.DrawFn) -> list[Wire]:
    """Return the lives of messages in two queues of ActiveMQ, one with groups, as its collector reports them.

    No window is known, and only a settlement or another receive ends a delivery. A client may deliver a message again by itself,
    which the broker counts and does not report.
    """
    events = [_of_broker("queue_state", 0, queue, attributes={"kind": kind}) for queue, kind in KINDS_OF_ACTIVEMQ.items()]
    for n in range(draw(st.integers(1, 8))):
        events += _life_in_activemq(draw, n)
    return events


def _of_broker(type_: str, at: int, queue: str, **fields: Any) -> Wire:
    ordered = {"ordered": True} if KINDS_OF_ACTIVEMQ.get(queue) == "grouped" and type_ != "queue_state" else {}
    return event(type_, at, queue, system="activemq", **ordered, **fields)


def _life_in_activemq(draw: st.DrawFn, n: int) -> list[Wire]:
    queue = draw(st.sampled_from(sorted(KINDS_OF_ACTIVEMQ)))
    at = draw(st.integers(0, 120_000))
    about: dict[str, Any] = {"message_id": f"ID:host-1-1:1:1:{n}"}
    # Without its body, an advisory says only which message it is about.
    body: dict[str, Any] = {"sent_at": T0 + at} if draw(st.booleans()) else {}
    if queue == "grouped":
        about |= {"group": draw(st.sampled_from(["a", "b"])), "sequence": str(10 * at + n)}
    events = [_of_broker("sent", at, queue, **about, **body)] if draw(st.booleans()) else []
    counted, count = draw(st.booleans()), 0
    for count in range(1, draw(st.integers(0, 5)) + 1):
        at += draw(st.integers(1, 20_000))
        if counted and draw(st.integers(0, 4)) == 0:
            continue
        delivery = about | body | {"consumer": f"ID:c-{count % 2}"} | ({"receive_count": count} if counted else {})
        events.append(_of_broker("received", at, queue, **delivery))
        if draw(st.integers(0, 4)) == 0:
            # Its consumer left.
            at += draw(st.integers(1, 5_000))
            events.append(_of_broker("released", at, queue, **delivery))
    at += draw(st.integers(1, 10_000))
    end = draw(st.sampled_from(["deleted", "dead_lettered", "expired", "lives", "lives"]))
    if end == "lives":
        return events
    total = {"receive_count": max(count, draw(st.integers(1, 7)))} if draw(st.booleans()) else {}
    there = f"DLQ.{queue}"
    events.append(_of_broker(end, at, queue, **about, **body, **total, **({"to_queue": there} if end == "dead_lettered" else {})))
    if end == "dead_lettered":
        dead = {"message_id": about["message_id"]} | body
        if draw(st.booleans()):
            events.append(_of_broker("sent", at, there, **dead))
        for count in range(1, draw(st.integers(0, 3)) + 1):
            at += draw(st.integers(1, 20_000))
            events.append(_of_broker("received", at, there, receive_count=count, **dead))
        if draw(st.booleans()):
            events.append(_of_broker("deleted", at + 5_000, there, **dead))
    return events


def _end(draw: st.DrawFn, how: str, at: int, queue: str, dead: str, about: dict[str, Any], total: dict[str, Any]) -> list[Wire]:
    fifo = queue.endswith(".fifo")
    if how == "lives" or (how == SEEN_IN_DEAD_LETTER_QUEUE and fifo):
        return []
    if how == SEEN_IN_DEAD_LETTER_QUEUE:
        return [event("received", at, dead, receive_count=9, **about)]
    if how != "dead_lettered":
        return [event(how, at, queue, **about, **total)]
    events = []
    known_by = draw(st.sampled_from([("move",), ("receive",), ("move", "receive"), ()]))
    if "move" in known_by:
        events.append(event("dead_lettered", at, queue, to_queue=dead, **about, **total))
    if "receive" in known_by:
        at += 1_000
        moved = {"sent_at": T0 + at - 500} if fifo and draw(st.booleans()) else {}
        named = {} if "move" in known_by and not fifo and draw(st.booleans()) else {"from_queue": queue}
        events.append(event("received", at, dead, receive_count=9, **named, **about, **moved))
    if not known_by or draw(st.booleans()):
        # Of SQS, which reports no moves, the redrive may be all that is known.
        at += 1_000
        events.append(event("redriven", at, dead, to_queue=queue, new_message_id=about["message_id"] + "-again", **about))
    elif len(events) == 1 and draw(st.booleans()):
        # It was not moved after all.
        at += draw(st.integers(1, 120_000))
        events.append(event("received", at, queue, receive_count=draw(st.sampled_from([8, 10])), **about))
    return events


def said(merged: Merged) -> dict[str, dict[str, Any]]:
    """Return the core's report in the model's terms."""
    out = {}
    for (_, _, queue), summary in merged.queues.items():
        scopes = zip(AGE_SCOPES, summary.oldest, strict=True)
        ordered = summary.ordered_facts
        out[queue] = {
            "depth": {state: summary.numbers[state] for state in ("visible", "in_flight", "delayed")},
            "held_since": None if summary.numbers["held_since"] >= NEVER else summary.numbers["held_since"],
            "oldest": {scope: None if at >= NEVER else at for scope, at in scopes},
            "poison": {one.view.message_id for one in summary.messages.get("poison", [])},
            "totals": {t: summary.total(t) for t in TOTALS if t not in NOT_MODELLED},
            "purged": sum(purge.messages for purge in summary.purges),
            "arrivals": {a.message_id: a.at for a in merged.arrivals if a.queue[2] == queue},
            "stuck": {_stuck(s)[0]: _stuck(s)[1:] for s in ordered.stuck} if ordered else {},
        }
    return out


NOT_MODELLED = {
    "reconciled",
    "found_later",
    "arrived",
    "retried",
    "outlived",
    "wait_ms",
    "processing_ms",
    "processed",
    "sojourn_ms",
}
"""The last four have their own test, `test_durations`."""


def _stuck(stuck: StuckGroup) -> tuple[str, str, int, str, bool]:
    head = stuck.group.head
    return stuck.group.name, head.message_id if head else "", stuck.waiting, stuck.reason, stuck.may_begin


def expected(model: Model, queue: str, now: int) -> dict[str, Any]:
    return {
        "depth": model.depth(queue, now),
        "held_since": model.held_since(queue, now),
        "oldest": model.oldest(queue, now),
        "poison": model.poison(queue),
        "totals": model.totals(queue, now),
        "purged": model.purged(queue, now),
        "arrivals": model.arrivals(queue),
        "stuck": model.stuck(queue, now) if queue in model.ordered else {},
    }


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_core_and_reference_agree(data: st.DataObject) -> None:
    """Shuffled, repeated, split into steps, restarted from the packed state, compacted at once or never, over several shards."""
    agree(data, data.draw(lifecycles()))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_core_and_reference_agree_on_messages_redriven_to_a_live_queue(data: st.DataObject) -> None:
    """They are no dead letters there, if only one of them was seen at its first receive."""
    agree(data, STATES + data.draw(redriven()))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_core_and_reference_agree_on_messages_sent_at_once(data: st.DataObject) -> None:
    """Without positions, what was received shows which message of a group is its head."""
    agree(data, STATES + data.draw(sent_at_once()))


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_core_and_reference_agree_on_purges(data: st.DataObject) -> None:
    """How a delivery would have ended that a purge cut short is unknown, so failures and stuck groups are not compared."""
    events = data.draw(lifecycles(ENDS_BEFORE_PURGES)) + data.draw(purges())
    agree(data, events, ("depth", "held_since", "oldest", "poison", "arrivals", "purged"))


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_core_and_reference_agree_on_changed_visibility_timeouts(data: st.DataObject) -> None:
    """A receive keeps the timeout that its queue had then, in whatever order receives and reports of timeouts arrive."""
    agree(data, data.draw(lifecycles(("dead_lettered", "lives", "lives", "lives"))) + data.draw(timeouts()))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_core_and_reference_agree_on_consumers_whose_clocks_differ(data: st.DataObject) -> None:
    """What orders the deliveries of a message says nothing of others, so groups, which wait for each other, are not compared."""
    fields = ("depth", "held_since", "oldest", "poison", "totals", "arrivals")
    events = data.draw(by_other_clocks(data.draw(lifecycles(("deleted", "dropped", "expired", "lives")))))
    agree(data, events, fields)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_core_and_reference_agree_on_activemq(data: st.DataObject) -> None:
    """Its messages are held until they are settled, and its groups are not blocked by a head."""
    agree(data, data.draw(activemq()))


def agree(data: st.DataObject, events: list[Wire], fields: Sequence[str] | None = None) -> None:
    """Check that both agree on these fields (None: all) after the events were reported in some way."""
    reported = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=5))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reported)), max_size=4)))
    parts = [reported[i:j] for i, j in zip([0, *cuts], [*cuts, len(reported)], strict=True)]
    ends = sorted(data.draw(st.lists(st.integers(200_000, END_MS), min_size=1, max_size=3)))
    # All events are reported when the clock is at 0; then only time passes.
    steps = [(0, part) for part in parts] + [(end, []) for end in ends]
    # The lives do not keep to the order of groups, in which a later message proves that those before it are gone.
    thresholds = Thresholds(reconcile_after_s=3_600)
    reports = run_steps(
        steps,
        Settings(defaults=thresholds),
        shards=data.draw(st.sampled_from([1, 2, 5])),
        restart=data.draw(st.booleans()),
        fewest_tombstones=data.draw(st.sampled_from([1, 4_096])),
    )
    windows = VISIBILITY_MS | WINDOWS_OF_ACTIVEMQ
    model = Model(windows, MAX_RECEIVES, DEAD_LETTER_QUEUES)
    model.tell(events)
    for end, merged in zip(ends, reports[len(parts) :], strict=True):
        for queue, words in said(merged).items():
            if queue in windows:
                found = expected(model, queue, T0 + end)
                chosen = fields or found
                assert {fact: words[fact] for fact in chosen} == {fact: found[fact] for fact in chosen}, queue
    accepted = reports[-1].events_total
    assert accepted["accepted"] == len(events)
    assert accepted["duplicate"] == len(reported) - len(events)
