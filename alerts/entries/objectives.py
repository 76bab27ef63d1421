"""Objectives: the error budget, the allowed share of late messages, is being used up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alerts.entries.flow import QUEUE_LAGGING
from alerts.entry import QUEUE_IDENTITY, AlertSpec, Entry, EvidenceField, Link
from alerts.objectives import BURN, FAST, FEWEST_MISSED, MISSED, SLOW, Pair
from alerts.templating import QUEUE, messages_in, oldest, own_value
from alerts.units import duration, spoken_duration

_WORKBOOK = Link("Google SRE workbook: Alerting on SLOs", "https://sre.google/workbook/alerting-on-slos/")
_EVIDENCE = (
    EvidenceField(
        f"{BURN}1h", "how many times faster than allowed the budget was used in 1h; also for 5m, 30m, 2h, 6h, 1d and 3d"
    ),
    EvidenceField(f"{MISSED}1h", "messages late or lost in the last hour"),
    EvidenceField("queue:queuewatch_objective_budget_left:ratio28d", "what is left of the 28 days' budget; negative: overspent"),
)
_MEANING = (
    "Messages of the queue are settled too late, or lost, so often that the objective configured for it (`alerts.objectives`) "
    "will be missed. A message counts as late when it is settled after the objective's time, dead-lettered, expired or dropped."
)
_IGNORE = ("An announced backfill whose late messages hurt nobody.",)


def _burning(pairs: Iterable[Pair]) -> str:
    """Return PromQL that is true if, over both windows of any pair, the budget burns faster than the pair's factor."""
    return " or ".join(_both(pair, duration(pair.long_s), duration(pair.short_s)) for pair in pairs)


def _both(pair: Pair, long: str, short: str) -> str:
    factor = f"{pair.factor:.4g}"
    return (
        f'({BURN}{long}{{objective!=""%(match)s}} > {factor} and {BURN}{short} > {factor} and {MISSED}{long} >= {FEWEST_MISSED})'
    )


def _rule(pairs: Sequence[Pair]) -> tuple[str, ...]:
    used = "; or ".join(
        f"{pair.budget_ratio:.0%} of the 28 days' budget was used in {spoken_duration(pair.long_s)} ({pair.factor:.4g} times the "
        f"allowed rate), and it was used at that rate in the last {spoken_duration(pair.short_s)} too"
        for pair in pairs
    )
    return (
        f"{used}.",
        f"At least {FEWEST_MISSED} messages were late or lost in the longer window.",
        "This has lasted for {wait}.",
    )


_DESCRIPTION = (
    f"{QUEUE} uses up the error budget of objective {{{{ $labels.objective }}}} at {own_value('factor')} times the allowed rate. "
    f"Visible messages: {messages_in('visible')}. Oldest visible: {oldest('visible')}."
)

BUDGET_BURNING = Entry(
    name="ErrorBudgetBurning",
    group="objectives",
    subject="objective",
    meaning=_MEANING,
    rule=_rule(FAST),
    thresholds=(),
    severity="critical",
    alert=AlertSpec(
        expr=_burning(FAST),
        why="The long window shows that the problem matters, the short one that it continues, so it ends soon after the cause.",
        summary="A queue uses up its error budget within days.",
        description=_DESCRIPTION,
        identity=(*QUEUE_IDENTITY, "objective"),
        for_s=120.0,
    ),
    dashboard="queue",
    evidence=_EVIDENCE,
    checks=QUEUE_LAGGING.checks,
    fix=(
        "See on the dashboard whether messages are late because they wait (`wait`) or because the work is slow (`processing`).",
        "Late while waiting: add consumers. Late in processing: roll back or repair what became slow.",
        "Lost, not late: start from the dead letters and the signals of the queue.",
    ),
    ignore=_IGNORE,
    links=(_WORKBOOK,),
)

BUDGET_BURNING_SLOWLY = Entry(
    name="ErrorBudgetBurningSlowly",
    group="objectives",
    subject="objective",
    meaning=_MEANING,
    rule=_rule(SLOW),
    thresholds=(),
    severity="warning",
    alert=AlertSpec(
        expr=_burning(SLOW),
        why="A slow loss is no reason to wake somebody, but it misses the objective all the same.",
        summary="A queue will miss its objective at this rate.",
        description=_DESCRIPTION,
        identity=(*QUEUE_IDENTITY, "objective"),
        for_s=900.0,
    ),
    dashboard="queue",
    evidence=_EVIDENCE,
    checks=QUEUE_LAGGING.checks,
    fix=(
        "Look at a week of the dashboard's Objectives row for a pattern: a time of day, a deployment, one kind of message.",
        "If the work simply takes that long, the objective is wrong: set one that users need.",
    ),
    ignore=_IGNORE,
    links=(_WORKBOOK,),
)

ENTRIES: tuple[Entry, ...] = (BUDGET_BURNING, BUDGET_BURNING_SLOWLY)
