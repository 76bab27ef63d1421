"""Build the summaries of several queues together: most of the time goes to looking up their rows in each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.core.columns import Array, nonzero
from streaming.core.reporting.consumers import holder_of
from streaming.core.reporting.purges import merge_purges
from streaming.core.reporting.queue_columns import FLAGS, INTEGERS, NUMBERS, NamedColumns, QueueColumns
from streaming.core.reporting.report import ConsumerHolds, ConsumerResults, GroupReport, QueueSummary, TrackedAtCount
from streaming.core.reporting.tenants import group_of
from streaming.core.state.consumer_states import ConsumerState, read_attributes
from streaming.core.state.interner import text_of
from streaming.core.state.queues import Depth

if TYPE_CHECKING:
    from streaming.core.reporting.merge import MergedQueues


def make_summaries(queues: MergedQueues, places: Sequence[int]) -> list[QueueSummary]:
    """Return everything reported about the queues at `places`."""
    chosen = np.array(places, dtype=np.int64)
    columns = dict(zip(INTEGERS, queues.integers[:, chosen].tolist(), strict=True))
    columns |= zip(FLAGS, queues.flags[:, chosen].tolist(), strict=True)
    numbers = zip(*(columns[name] for name in NUMBERS), strict=True)
    summaries = [
        QueueSummary(
            name=queues.names[place],
            attributes=queues.attributes(place).attributes,
            totals=totals,
            durations=queues.durations_of([place]),
            depths=[],
            tracked_at_counts={},
            ordered=columns["ordered"][i],
            dead_letter=columns["dead_letter"][i],
            messages_seen=columns["messages_seen"][i],
            last_event_at=columns["last_event_at"][i],
            last_received_at=columns["last_received_at"][i],
            last_settled_at=columns["last_settled_at"][i],
            last_state_at=columns["last_state_at"][i],
            skew_ms=columns["skew_ms"][i],
            left_out_at=columns["left_out_at"][i],
            numbers=dict(zip(NUMBERS, values, strict=True)),
            oldest=oldest,
            oldest_but_used_up=but_used_up,
            age_counts=age_counts,
            messages=queues.messages_of(place),
        )
        for i, (place, values, totals, oldest, but_used_up, age_counts) in enumerate(
            zip(
                places,
                numbers,
                *(
                    table[chosen].tolist()
                    for table in (queues.totals, queues.oldest, queues.oldest_but_used_up, queues.age_counts)
                ),
                strict=True,
            )
        )
    ]
    for shard, rows in queues.shard_rows(chosen):
        _add_shard(summaries, shard, rows, queues.losses_per_queue)
    return summaries


def _add_shard(summaries: Sequence[QueueSummary], shard: QueueColumns, rows: Array, most_losses: int) -> None:
    """Add what one shard reports; `rows`: each queue's row there, -1 where the shard does not know it."""
    for i, counts in _rows_of(shard.depths, rows):
        # How long a shard keeps counts depends on the events it has seen.
        if len(counts) > len(summaries[i].depths):
            summaries[i].depths = [Depth(*count) for count in counts]
    for i, tracked in _rows_of(shard.tracked_at_counts, rows):
        at_counts = summaries[i].tracked_at_counts
        for at, *numbers in tracked:
            so_far = at_counts.get(at, TrackedAtCount())
            at_counts[at] = TrackedAtCount(*map(add, so_far, numbers))
    for i, found in _named(shard.acks, rows):
        acks = summaries[i].consumer_acks
        for consumer, at in found:
            acks[consumer] = max(at, acks.get(consumer, 0))
    for i, found in _named(shard.results, rows):
        results = summaries[i].consumer_results
        for consumer, finished, failed in found:
            before = results.get(consumer)
            results[consumer] = (
                ConsumerResults(finished, failed)
                if before is None
                else ConsumerResults(before.finished + finished, before.failed + failed)
            )
    for i, found in _named(shard.groups, rows):
        summaries[i].groups = _merge_groups(summaries[i].groups, [group_of(one) for one in found])
    for i, found in _named(shard.consumers, rows):
        summaries[i].consumers = _merge_consumers(summaries[i].consumers, [holder_of(one) for one in found])
    of_consumers = shard.consumer_states
    reports = (of_consumers.queue, of_consumers.names, of_consumers.at, of_consumers.texts, of_consumers.dispatched_at)
    for i, found in _rows_of(reports, rows):
        for consumer, at, text, dispatched_at in found:
            summaries[i].consumer_states[consumer] = ConsumerState(at, read_attributes(text), dispatched_at)
    known = nonzero(rows >= 0)
    for i, folded in zip(known.tolist(), shard.folded_groups[rows[known]].tolist(), strict=True):
        summaries[i].folded_groups += folded
    if shard.losses or shard.purges or len(shard.ordered.queue):
        for i in known.tolist():
            _add_details(summaries[i], shard, int(rows[i]), most_losses)


def _named(columns: NamedColumns, rows: Array) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Yield the index of each of `rows` that has any, with its consumers or groups as tuples, each with its name first."""
    return _rows_of((columns.queue, columns.names, *columns.values), rows)


def _rows_of(columns: Sequence[Any], rows: Array) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Yield the index of each of `rows` that has any, with its part of the columns as tuples.

    The first column has the row of each, ascending.
    """
    owner, *fields = columns
    if len(owner):
        yield from slices_of(fields, *(np.searchsorted(owner, rows, side=side) for side in ("left", "right")))


def slices_of(fields: Sequence[Any], starts: Array, stops: Array) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Yield the index of each slice that is not empty, with its part of the columns as tuples."""
    some = nonzero(stops > starts)
    starts, lengths = starts[some], (stops - starts)[some]
    ends = np.cumsum(lengths)
    at = np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
    found = list(zip(*(_list(column, at) for column in fields), strict=True))
    for i, end, length in zip(some.tolist(), ends.tolist(), lengths.tolist(), strict=True):
        yield i, found[end - length : end]


def _list(column: Any, at: Array) -> list[Any]:
    values: list[Any] = column[at].tolist() if isinstance(column, np.ndarray) else text_of(column, at).to_pylist()
    return values


def _add_details(summary: QueueSummary, shard: QueueColumns, row: int, most_losses: int) -> None:
    """Add what few queues have."""
    if row in shard.losses:
        summary.losses = sorted(summary.losses + shard.losses[row])[-most_losses:]
    if row in shard.purges:
        summary.purges = merge_purges(summary.purges, shard.purges[row])
    summary.ordered_facts = summary.ordered_facts or shard.ordered.get(row)


def _merge_groups(a: list[GroupReport], b: list[GroupReport]) -> list[GroupReport]:
    if not a or not b:
        return a or b
    known = {group.name: group for group in a}
    for group in b:
        other = known.get(group.name)
        if other is not None:
            group = GroupReport(
                name=group.name,
                unsettled=group.unsettled + other.unsettled,
                in_flight=group.in_flight + other.in_flight,
                visible=group.visible + other.visible,
                oldest_sent_at=min(group.oldest_sent_at, other.oldest_sent_at),
                last_settled_at=0,
            )
        known[group.name] = group
    return sorted(known.values(), key=lambda g: (g.oldest_sent_at, g.name))


def _merge_consumers(a: list[ConsumerHolds], b: list[ConsumerHolds]) -> list[ConsumerHolds]:
    if not a or not b:
        return a or b
    known = {held.consumer: held for held in a}
    for held in b:
        other = known.get(held.consumer)
        if other is not None:
            oldest = min(held, other, key=lambda h: h.rank)
            at_count = held.held_at_count + other.held_at_count
            held = oldest._replace(messages=held.messages + other.messages, held_at_count=at_count)
        known[held.consumer] = held
    return sorted(known.values(), key=lambda h: (h.since, h.consumer))
