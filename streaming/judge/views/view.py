"""Convert a queue's summary to the plain values that are published."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple, overload

import numpy as np

from streaming.core.columns import Array
from streaming.core.reporting.merge import LOADED_TOGETHER, MergedQueues
from streaming.core.reporting.report import ConsumerHolds, GroupReport, QueueSummary
from streaming.core.reporting.views import STATES
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import NEVER, TOTALS
from streaming.judge.evaluation.evaluation import Evaluation
from streaming.judge.knowledge.basis import Basis
from streaming.judge.knowledge.unseen_receives import receives_are_unseen
from streaming.judge.snapshot import ConsumerView, GroupState, GroupView, MessageView, QueueView
from streaming.judge.views.durations import durations

_revisions = count(1)
"""Numbers for the views yet to be built: see `QueueView.revision`."""


class Backlogs(NamedTuple):
    """What the history keeps of some queues."""

    names: Sequence[QueueName]
    values: Array
    """A row per queue: its visible messages, and since when (epoch milliseconds) its oldest message has been in it (infinity
    where it is empty). NaN where that is not known."""


class Views(Sequence[QueueView]):
    """The published views of all queues, in name order. A view is built on first access.

    `places` are the rows of the queues to show, all of which have been judged, and `backlogs` their values for the history.
    `evaluations` has the latest evaluation of the queue of each row, `made` the views of earlier steps, by queue: the view of a
    queue that was not judged since is reused.
    """

    def __init__(
        self,
        queues: MergedQueues,
        places: Sequence[int],
        *,
        evaluations: Sequence[Evaluation | None],
        backlogs: Array,
        made: dict[QueueName, tuple[Evaluation, QueueView]],
        settings: Settings,
    ) -> None:
        self._queues, self._places, self._evaluations, self._settings = queues, places, evaluations, settings
        self._backlogs, self._shared = backlogs, made
        self._made: dict[int, QueueView] = {}

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> QueueView: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[QueueView, ...]: ...
    def __getitem__(self, at: int | slice) -> QueueView | tuple[QueueView, ...]:
        if isinstance(at, slice):
            return tuple(self._view(i) for i in range(len(self))[at])
        return self._view(range(len(self))[at])

    def __iter__(self) -> Iterator[QueueView]:
        """Yield every view. The summaries of those yet to be built are built together, some thousand at a time."""
        for first in range(0, len(self), LOADED_TOGETHER):
            together = range(first, min(first + LOADED_TOGETHER, len(self)))
            if first:
                self._queues.unload()
            self._queues.load([place for place in (self._places[i] for i in together) if self._made_before(place) is None])
            yield from (self._view(i) for i in together)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment] # equal views have no hash of their own

    def _made_of(self, place: int) -> QueueView:
        """Return the view of the queue of one row, or that of an earlier step if the queue was not judged since."""
        view = self._made_before(place)
        if view is None:
            view = queue_view(self._queues.summary(place), self._evaluation(place), self._settings)
            self._shared[view.name] = self._evaluation(place), view
        return view

    def _made_before(self, place: int) -> QueueView | None:
        known, view = self._shared.get(self._queues.names[place], (None, None))
        return view if known is self._evaluation(place) else None

    def _evaluation(self, place: int) -> Evaluation:
        evaluation = self._evaluations[place]
        assert evaluation is not None, f"{self._queues.names[place]} was never judged"
        return evaluation

    def _view(self, i: int) -> QueueView:
        found = self._made.get(i)
        if found is None:
            found = self._made[i] = self._moved(self._places[i])
        return found

    def _moved(self, place: int) -> QueueView:
        """Return the view with what may have changed without an evaluation: messages age even when nothing happens."""
        view = self._made_of(place)
        reported_at = int(self._queues.columns["last_event_at"][place])
        if not view.tracked:
            same = view.last_event_at_ms == reported_at
            return view if same else view.moved(view.age_counts, view.age_sum_s, reported_at, view.messages)
        counts = tuple(self._queues.age_counts[place].tolist()) if view.age_counts else ()
        age_sum_s = int(self._queues.columns["age_sum_ms"][place]) / 1000
        return view.moved(counts, age_sum_s, reported_at, _Messages(self._queues, place))

    @property
    def backlogs(self) -> Backlogs:
        """What the history keeps of all queues. Builds no views."""
        return Backlogs([self._queues.names[place] for place in self._places], self._backlogs)


class _Messages(Sequence[MessageView]):
    """The listed messages of one queue, built on first access: a scrape does not read them."""

    __slots__ = ("_found", "_place", "_queues")

    def __init__(self, queues: MergedQueues, place: int) -> None:
        self._queues, self._place = queues, place
        self._found: tuple[MessageView, ...] | None = None

    def _all(self) -> tuple[MessageView, ...]:
        if self._found is None:
            self._found = _messages(self._queues.summary(self._place))
        return self._found

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, at: int) -> MessageView: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[MessageView, ...]: ...
    def __getitem__(self, at: int | slice) -> MessageView | tuple[MessageView, ...]:
        return self._all()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    __hash__ = None  # type: ignore[assignment] # a tuple with the same messages is equal and has another hash


def backlogs(queues: Sequence[QueueView]) -> Backlogs:
    """Return what the history keeps of some queues."""
    if isinstance(queues, Views):
        return queues.backlogs
    known = [(queue.visible, queue.oldest_ms.get("all", math.inf if queue.is_empty else None)) for queue in queues]
    return Backlogs([queue.name for queue in queues], np.array(known, dtype=np.float64).reshape(-1, 2))


def queue_view(summary: QueueSummary, evaluation: Evaluation, settings: Settings) -> QueueView:
    """Return the published values of one queue, without its messages. What is unknown is None or absent, never zero."""
    numbers = summary.numbers
    depth, reason = evaluation.knowledge.depth, evaluation.knowledge.reason
    receives = reason.basis in ("messages", "consumers", "partial")
    # Without receives these are only known if another event reports how often a message was delivered: then they are not 0.
    zero_is_known = not receives_are_unseen(summary)
    top_k = settings.top_k
    groups, other_groups, other_oldest = _groups(summary, evaluation.stuck_groups, top_k)
    if not evaluation.knowledge.groups_are_known:
        groups, other_groups, other_oldest = tuple(group for group in groups if _is_there(group, summary)), 0, None
    held = summary.consumers if evaluation.knowledge.holds_are_known else []
    return QueueView(
        system=summary.name.system,
        scope=summary.name.scope,
        queue=summary.name.queue,
        status=evaluation.status,
        kind=str(summary.attribute("kind")) if summary.attribute("kind") else None,
        ordered=evaluation.ordered,
        is_dead_letter_queue=summary.dead_letter,
        basis=reason.basis,
        basis_since_ms=evaluation.basis_since,
        basis_reason=reason.why,
        next_step=reason.next_step,
        visible=depth.get("visible"),
        in_flight=depth.get("in_flight"),
        delayed=depth.get("delayed"),
        tracked_states={state: numbers[state] for state in STATES} if summary.messages_seen else {},
        tracked=sum(numbers[state] for state in STATES),
        oldest_ms={scope: age.since_ms for scope, age in evaluation.knowledge.ages.items()},  # type: ignore[misc]
        exact_ages=frozenset(scope for scope, age in evaluation.knowledge.ages.items() if age.exact),
        age_counts=tuple(summary.age_counts) if reason.basis == "messages" else (),
        age_sum_s=numbers["age_sum_ms"] / 1000,
        totals=_totals(summary, reason.basis),
        receive_count_max=_known(numbers["receive_count_max"], receives, zero_is_known),
        poison_messages=_known(numbers["poison"], receives, zero_is_known),
        stuck_groups=_stuck_groups(summary, evaluation.stuck_groups),
        groups=_group_states(summary, evaluation),
        top_groups=groups,
        other_groups=other_groups,
        other_groups_oldest_ms=other_oldest,
        consumers=tuple(_consumer(summary, h) for h in held[:top_k]),
        other_consumers=max(0, len(held) - top_k),
        other_consumers_held_since_ms=held[top_k].since if len(held) > top_k else None,
        dead_letter_expires_at_ms=numbers["expires_at"] if numbers["dead_letters"] and numbers["expires_at"] < NEVER else None,
        time_to_drain_s=evaluation.time_to_drain_s,
        coverage_ratio=evaluation.coverage_ratio,
        messages=(),
        broker={name: reported.value for name, reported in summary.attributes.items()},
        last_event_at_ms=summary.last_event_at,
        last_settled_at_ms=summary.last_settled_at or None,
        last_received_at_ms=summary.last_received_at or None,
        dead_letter_queue=evaluation.dead_letter_queue.queue if evaluation.dead_letter_queue else None,
        tags=_tags(summary, settings),
        durations=durations(summary.durations, dict(zip(TOTALS, summary.totals, strict=True))),
        clock_skew_s=summary.skew_ms / 1000 if summary.skew_ms else None,
        near=evaluation.knowledge.near,
        near_at_ms=evaluation.at,
        revision=next(_revisions),
    )


def _known(number: int, receives: bool, zero_is_known: bool) -> int | None:
    return number if receives and (number or zero_is_known) else None


_SEND_TOTALS, _TAKE_TOTALS = ("sent",), ("received", "deleted", "dead_lettered", "redriven", "expired", "dropped")


def _totals(summary: QueueSummary, basis: Basis) -> dict[str, int]:
    """Return the reported running totals: that of sends where sends are seen, that of receives where these are, and so on."""
    if not summary.messages_seen:
        return {}
    totals = {name: n for name, n in zip(TOTALS, summary.totals, strict=True) if not name.endswith("_ms")}
    if receives_are_unseen(summary):
        del totals["received"]
    if basis == "consumers" and not totals["sent"]:
        return {name: value for name, value in totals.items() if name not in _SEND_TOTALS}
    if basis == "producers":
        return {name: value for name, value in totals.items() if name not in _TAKE_TOTALS or value}
    return totals


TAG_CHARS = 128
"""The length to which a tag's value is cut: it becomes a label."""


def _tags(summary: QueueSummary, settings: Settings) -> dict[str, str]:
    tags = summary.attribute("tags") if settings.tag_labels else None
    return {name: str(tags[name])[:TAG_CHARS] for name in settings.tag_labels if name in tags} if isinstance(tags, dict) else {}


def _consumer(summary: QueueSummary, h: ConsumerHolds) -> ConsumerView:
    state = summary.consumer_states.get(h.consumer)
    attributes = state.attributes if state else {}
    return ConsumerView(
        consumer=h.consumer,
        held=h.messages,
        oldest_held_since_ms=h.since,
        oldest_message_id=h.message_id,
        connected=attributes.get("connected"),
        prefetch=attributes.get("prefetch"),
    )


def _messages(summary: QueueSummary) -> tuple[MessageView, ...]:
    """Return every listed message once, with all the reasons it is listed for."""
    views: dict[str, MessageView] = {}
    reasons: dict[str, list[str]] = {}
    for kind in ("poison", "held", "dead_letter", "oldest"):
        for _, view in summary.messages.get(kind, []):
            views.setdefault(view.message_id, view)
            reasons.setdefault(view.message_id, []).append(kind)
    ordered = summary.ordered_facts
    heads = [g.head for g in ordered.oldest if g.head] + [s.group.head for s in ordered.stuck if s.group.head] if ordered else []
    for head in heads:
        views.setdefault(head.message_id, head)
        known = reasons.setdefault(head.message_id, [])
        if "head" not in known:
            known.append("head")
    return tuple(_because(view, tuple(reasons[message_id])) for message_id, view in views.items())


def _because(view: MessageView, why: tuple[str, ...]) -> MessageView:
    return view if view.why == why else replace(view, why=why)


def _stuck_groups(summary: QueueSummary, stuck: Collection[str]) -> int:
    """Return how many groups are stuck: those of signals, and those that were too many to be listed."""
    ordered = summary.ordered_facts
    return len(stuck) + ordered.stuck_groups - sum(s.may_begin for s in ordered.stuck) if ordered is not None else 0


def _groups(summary: QueueSummary, stuck: Collection[str], top_k: int) -> tuple[tuple[GroupView, ...], int, int | None]:
    ordered = summary.ordered_facts
    if ordered is not None:
        views = tuple(_group(g, g.name in stuck) for g in ordered.oldest)
        return views, max(0, ordered.groups - len(views)), ordered.others_oldest_at
    groups = summary.groups
    views = tuple(_group(g, False) for g in groups[:top_k])
    others = len(groups) - len(views) + summary.folded_groups
    return views, others, groups[top_k].oldest_sent_at if len(groups) > top_k else None


def _group(g: GroupReport, stuck: bool) -> GroupView:
    head_id, head_receives = (g.head.message_id, g.head.receive_count) if g.head else (None, 0)
    settled = g.last_settled_at or None
    return GroupView(
        group=g.name,
        unsettled=g.unsettled,
        in_flight=g.in_flight,
        oldest_sent_at_ms=g.oldest_sent_at,
        head_message_id=head_id,
        head_receive_count=head_receives,
        last_settled_at_ms=settled,
        stuck=stuck,
        standing_since_ms=g.standing_since or None,
    )


def _is_there(group: GroupView, summary: QueueSummary) -> bool:
    """Whether the oldest message of a group is certainly in the queue, although not all messages are known."""
    ordered = summary.ordered_facts
    heads = {g.name: g.head for g in ordered.oldest} if ordered is not None else {}
    head = heads.get(group.group)
    return group.stuck or (head is not None and head.state == "in_flight")


def _group_states(summary: QueueSummary, evaluation: Evaluation) -> dict[GroupState, int]:
    """Return how many groups are in each state, as far as it is known.

    Which are in flight, and so block others, is not known without their receives; which have a backlog is not known without their
    sends; and nothing is where some messages leave unseen.
    """
    states, known = _all_group_states(summary, evaluation.ordered), evaluation.knowledge
    if not states or not known.groups_are_known:
        return {}
    if not known.in_flight_is_known:
        return {"backlog": states["backlog"]}
    return states if known.waiting_is_known else {"in_flight": states["in_flight"]}


def _all_group_states(summary: QueueSummary, ordered_queue: bool) -> dict[GroupState, int]:
    ordered = summary.ordered_facts
    if ordered is not None:
        return {
            "backlog": ordered.backlog,
            "in_flight": ordered.in_flight,
            "blocked": ordered.blocked,
            "hidden": ordered.hidden,
        }
    groups = summary.groups
    if not groups:
        return {"backlog": 0, "in_flight": 0, "blocked": 0, "hidden": 0} if ordered_queue and summary.messages_seen else {}
    backlog = sum(1 for g in groups if g.visible)
    # The groups of a fair queue block none.
    return {"backlog": backlog, "in_flight": sum(1 for g in groups if g.in_flight), "blocked": 0, "hidden": 0}
