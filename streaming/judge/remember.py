"""What the judge keeps of a queue for its next evaluation: the only place, with `learn`, where a queue's memory is written.

Before the rules run, the latest processing times and counts are applied to the memory. The rules then only read it, and all that
they conclude from it is stored after them.
"""

from __future__ import annotations

from streaming.core.state.duration_buckets import DURATIONS
from streaming.judge.conditions.conditions import Condition, Conditions
from streaming.judge.conditions.outcomes import consumer_marks
from streaming.judge.context import HOUR_MS, Context
from streaming.judge.knowledge.unconfirmed_holds import unconfirmed_since
from streaming.judge.rules.config import misconfigured_since
from streaming.judge.rules.consumers import connected_since, strategy_verdicts
from streaming.judge.rules.dead_letters import counted_arrivals
from streaming.judge.rules.failing import failing_since, is_pending, pending_since
from streaming.judge.rules.groups import collapsed_at_work_since, collapsed_since, open_since, saturated_since
from streaming.judge.rules.lagging import eased_since, lagging_since
from streaming.judge.rules.noisy import noisy_groups
from streaming.judge.rules.prefetched import has_window, prefetched_since, working_since
from streaming.judge.rules.purges import recent_purges
from streaming.judge.rules.redrive import failed_since, progress_since
from streaming.judge.rules.retry_storm import retry_storm_since
from streaming.judge.rules.short_window import late_work_since, outlived_since
from streaming.judge.rules.silent import expected_since, silent_since
from streaming.judge.rules.stalled import backlog_since, failing_again_since
from streaming.judge.rules.telemetry import uncovered_since
from streaming.judge.turns import turns_with

HOLD_HALF_LIFE_MS = HOUR_MS
MOST_UNDATED = 20
"""Of a queue that the judge knows nothing of, all that was ever counted is new at once. It may have vanished and come back: what
its consumers did before that weighs no more than so many messages."""
PROCESSING = DURATIONS.index("processing")

CONDITIONS: tuple[Condition, ...] = (
    backlog_since,
    failing_again_since,
    prefetched_since,
    open_since,
    saturated_since,
    collapsed_since,
    collapsed_at_work_since,
    pending_since,
    failing_since,
    outlived_since,
    lagging_since,
    eased_since,
    expected_since,
    silent_since,
    retry_storm_since,
    uncovered_since,
)
OF_PARTS: tuple[Conditions, ...] = (
    misconfigured_since,
    failed_since,
    progress_since,
    unconfirmed_since,
    working_since,
    connected_since,
    late_work_since,
)


def remember_holds(c: Context) -> None:
    """Add newly counted processing times to the decaying distribution of usual holds."""
    memory, counted = c.memory, c.processed
    if counted is None:
        return
    elapsed = max(0, c.now - memory.holds_at) if memory.holds_at else 0
    fade = 0.5 ** (elapsed / HOLD_HALF_LIFE_MS)
    faded = {bucket: weight * fade for bucket, weight in memory.hold_weights.items() if weight * fade > 0.01}
    # The weights that an earlier release stored are of all that was counted until now.
    before = memory.processed_by_bucket if memory.processed or not faded else counted
    for bucket, count in counted.items():
        new = count - before.get(bucket, 0)
        if new > 0:
            faded[bucket] = faded.get(bucket, 0.0) + new
    if not memory.holds_at and (weight := sum(faded.values())) > MOST_UNDATED:
        faded = {bucket: of_bucket * MOST_UNDATED / weight for bucket, of_bucket in faded.items()}
    memory.hold_weights, memory.processed_by_bucket = faded, counted
    memory.processed, memory.holds_at = c.summary.total("processed"), c.now


def remember_turns(c: Context) -> None:
    """Add the turns that ended since the last evaluation at consumers with a prefetch window."""
    memory, summary = c.memory, c.summary
    if not summary.consumer_states and not memory.turns:
        return
    finished = summary.consumer_acks
    memory.turns_seen += any(finished.get(consumer, 0) > since for consumer, since in memory.at_work.items())
    memory.turns = turns_with(memory.turns, memory.at_work, finished, c.now)
    memory.at_work = {
        held.consumer: max(held.since, finished.get(held.consumer, 0))
        for held in summary.consumers
        if has_window(c, held.consumer)
    }


def remember(c: Context) -> None:
    """Store what the rules have concluded: since when conditions hold, and what they will compare with."""
    # Everything is computed from the old memory before any of it is replaced.
    since = {one.name: at for one in CONDITIONS if (at := one(c)) is not None}
    since |= {several.key(part): at for several in OF_PARTS for part, at in several(c).items()}
    strategies = {key: found.memory for key, found in strategy_verdicts(c).items()}
    marks, arrivals, noisy, purges = consumer_marks(c), counted_arrivals(c), noisy_groups(c), recent_purges(c)
    memory = c.memory
    pending_at = c.now if is_pending(c) else memory.pending_at
    memory.since, memory.strategies, memory.consumer_marks = since, strategies, marks
    memory.counted_arrivals, memory.noisy, memory.purges = arrivals, noisy, purges
    memory.pending_at = pending_at
