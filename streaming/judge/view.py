"""A queue's facts as the plain values that are published."""

from __future__ import annotations

from dataclasses import replace

from streaming.core.queues import TOTALS
from streaming.core.report import GroupFacts
from streaming.judge.context import Context
from streaming.judge.knowledge.queue import STATES
from streaming.judge.snapshot import ConsumerView, GroupState, GroupView, MessageView, QueueStatus, QueueView

DRAIN_WINDOW_MS = 300_000
DRAIN_MIN_MS = 60_000


def queue_view(c: Context, status: QueueStatus) -> QueueView:
    """What is published of one queue. What is not known is None or absent, never zero."""
    facts, numbers = c.facts, c.facts.numbers
    depth, reason = c.knowledge.depth, c.knowledge.reason
    receives = reason.basis in ("messages", "consumers", "partial")
    top_k = c.settings.top_k
    groups, other_groups, other_oldest = _groups(c, top_k)
    held = facts.consumers
    return QueueView(
        system=c.name.system,
        scope=c.name.scope,
        queue=c.name.queue,
        status=status,
        kind=str(facts.attribute("kind")) if facts.attribute("kind") else None,
        ordered=c.ordered,
        is_dead_letter_queue=c.is_dead_letter_queue,
        basis=reason.basis,
        basis_since_ms=c.memory.basis_since,
        basis_reason=reason.why,
        next_step=reason.next_step,
        visible=depth.get("visible"),
        in_flight=depth.get("in_flight"),
        delayed=depth.get("delayed"),
        tracked_states={state: numbers[state] for state in STATES} if facts.messages_seen else {},
        tracked=c.tracked,
        oldest_ms={scope: age.since_ms for scope, age in c.knowledge.ages.items()},  # type: ignore[misc]
        exact_ages=frozenset(scope for scope, age in c.knowledge.ages.items() if age.exact),
        age_counts=tuple(facts.age_counts) if reason.basis == "messages" else (),
        age_sum_s=numbers["age_sum_ms"] / 1000,
        totals=_totals(c),
        receive_count_max=numbers["receive_count_max"] if receives else None,
        poison_messages=numbers["poison"] if receives else None,
        stuck_groups=facts.ordered_facts.stuck_groups if facts.ordered_facts else 0,
        groups=_group_states(c),
        top_groups=groups,
        other_groups=other_groups,
        other_groups_oldest_ms=other_oldest,
        consumers=tuple(
            ConsumerView(h.consumer, h.held, h.since, h.message_id, *_connection(c, h.consumer)) for h in held[:top_k]
        ),
        other_consumers=max(0, len(held) - top_k),
        other_consumers_held_since_ms=held[top_k].since if len(held) > top_k else None,
        dead_letter_expires_at_ms=numbers["expires_at"] if numbers["dead_letters"] else None,
        time_to_drain_s=_time_to_drain_s(c),
        coverage_ratio=c.coverage_ratio,
        messages=_messages(c),
        broker={name: value for name, (_, value) in facts.attributes.items()},
        last_event_at_ms=facts.last_event_at,
        last_settled_at_ms=facts.last_settled_at or None,
        last_received_at_ms=facts.last_received_at or None,
        clock_skew_s=facts.skew_ms / 1000 if facts.skew_ms else None,
    )


_SEND_TOTALS, _TAKE_TOTALS = ("sent",), ("received", "deleted", "dead_lettered", "redriven", "expired", "dropped")


def _totals(c: Context) -> dict[str, int]:
    """Running totals of what is reported: of the sends where sends are seen, of the rest where consumers are."""
    if not c.facts.messages_seen:
        return {}
    totals = dict(zip(TOTALS, c.facts.totals, strict=True))
    if c.basis == "consumers" and not totals["sent"]:
        return {name: value for name, value in totals.items() if name not in _SEND_TOTALS}
    if c.basis == "producers":
        return {name: value for name, value in totals.items() if name not in _TAKE_TOTALS or value}
    return totals


def _connection(c: Context, consumer: str) -> tuple[bool | None, int | None]:
    state = c.facts.consumer_states.get(consumer)
    attributes = state.attributes if state else {}
    return attributes.get("connected"), attributes.get("prefetch")


def _messages(c: Context) -> tuple[MessageView, ...]:
    """Every listed message once, with all the reasons it is listed for."""
    views: dict[str, MessageView] = {}
    reasons: dict[str, list[str]] = {}
    for kind in ("poison", "held", "dead_letter", "oldest"):
        for view in c.messages(kind):
            views.setdefault(view.message_id, view)
            reasons.setdefault(view.message_id, []).append(kind)
    ordered = c.facts.ordered_facts
    heads = [g.head for g in ordered.oldest if g.head] + [s.group.head for s in ordered.stuck if s.group.head] if ordered else []
    for head in heads:
        views.setdefault(head.message_id, head)
        known = reasons.setdefault(head.message_id, [])
        if "head" not in known:
            known.append("head")
    return tuple(_because(view, tuple(reasons[message_id])) for message_id, view in views.items())


def _because(view: MessageView, why: tuple[str, ...]) -> MessageView:
    return view if view.why == why else replace(view, why=why)


def _groups(c: Context, top_k: int) -> tuple[tuple[GroupView, ...], int, int | None]:
    ordered = c.facts.ordered_facts
    if ordered is not None:
        stuck = {s.group.name for s in ordered.stuck}
        views = tuple(_group(g, g.name in stuck) for g in ordered.oldest)
        return views, max(0, ordered.groups - len(views)), ordered.others_oldest_at
    groups = c.facts.groups
    views = tuple(_group(g, False) for g in groups[:top_k])
    others = len(groups) - len(views) + c.facts.folded_groups
    return views, others, groups[top_k].oldest_sent_at if len(groups) > top_k else None


def _group(g: GroupFacts, stuck: bool) -> GroupView:
    head_id, head_receives = (g.head.message_id, g.head.receive_count) if g.head else (None, 0)
    settled = g.last_settled_at or None
    return GroupView(g.name, g.unsettled, g.in_flight, g.oldest_sent_at, head_id, head_receives, settled, stuck)


def _group_states(c: Context) -> dict[GroupState, int]:
    ordered = c.facts.ordered_facts
    if ordered is not None:
        return {
            "backlog": ordered.backlog,
            "in_flight": ordered.in_flight,
            "blocked": ordered.blocked,
            "hidden": ordered.hidden,
        }
    groups = c.facts.groups
    if not groups:
        return {"backlog": 0, "in_flight": 0, "blocked": 0, "hidden": 0} if c.ordered and c.facts.messages_seen else {}
    backlog = sum(1 for g in groups if g.unsettled > g.in_flight)
    # A fair queue's groups block nobody.
    return {"backlog": backlog, "in_flight": sum(1 for g in groups if g.in_flight), "blocked": 0, "hidden": 0}


def _time_to_drain_s(c: Context) -> float | None:
    """Backlog divided by how fast it shrank over the last five minutes, or since it began to; None unless it shrinks."""
    if not c.tracked or c.is_dead_letter_queue or c.basis != "messages":
        return None
    unsettled, settled = c.recent["unsettled"], c.recent["settled"]
    peak = _peak_behind(c)
    if peak is None:
        peak = _began_to_shrink(c)
    if peak is None or c.now - c.recent.at[peak] < DRAIN_MIN_MS or c.settled_total <= settled[peak]:
        return None
    gone = int(unsettled[peak]) - c.tracked
    return round(c.tracked * (c.now - int(c.recent.at[peak])) / gone / 1000, 1) if gone > 0 else None


def _peak_behind(c: Context) -> int | None:
    """The place of the largest backlog of the first half of the window, if the second half stayed below: one that goes up and
    down does not shrink."""
    at, unsettled = c.recent.at, c.recent["unsettled"]
    start = max(c.recent.last_before(c.now - DRAIN_WINDOW_MS), 0)
    middle = int(at[start]) + (c.now - int(at[start])) // 2
    first = [i for i in range(start, len(at)) if at[i] <= middle]
    peak = max(first, key=lambda i: (unsettled[i], at[i]))
    later = max([c.tracked, *(int(unsettled[i]) for i in range(start, len(at)) if at[i] > middle)])
    return peak if unsettled[peak] > later else None


def _began_to_shrink(c: Context) -> int | None:
    """The place of the sample since which the backlog never grew; None when it grew last."""
    at, unsettled = c.recent.at, c.recent["unsettled"]
    began, later = None, c.tracked
    for i in range(len(at) - 2, -1, -1):
        if unsettled[i] < later or at[i] < c.now - DRAIN_WINDOW_MS:
            break
        began, later = i, int(unsettled[i])
    return began
