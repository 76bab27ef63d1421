"""The cost of a step by the number of live messages, in one process."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.batches import batches
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.micro import Chain
from tests.benchmarks.shape import Shape

LIVE: Final = (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
EVENTS: Final = 100_000
_MEASURED: Final = 5
_WARM_UP: Final = 2


def measure(run: Run, *, quick: bool) -> None:
    """Measure steps of 100,000 events beside ever more live messages."""
    run.say("scale: a step by the number of live messages")
    for live in LIVE[:1] if quick else LIVE:
        _measure(run, live)


def _measure(run: Run, live: int) -> None:
    chain = Chain("arrow")
    # The backlog's messages wait for minutes, but not for longer than the lateness.
    stream = batches(Shape(live=live, events_per_s=max(20_000, live / 50)), EVENTS)
    first = live // EVENTS + _WARM_UP
    for _ in range(first + _MEASURED):
        chain.step(next(stream))
    spent = chain.medians_s(first, first + _MEASURED)
    rows, unsettled, size = chain.state()
    detail = {of: round(1000 * seconds, 1) for of, seconds in spent.items()} | {"rows": rows, "bytes": size}
    if abs(unsettled / live - 1) > 0.2:
        raise RuntimeError(f"{live} messages should be live, but {unsettled} are")
    what = f"{EVENTS:,} events beside {live:,} live messages: all steps"
    run.add(Figure(f"scale.{live}", what, 1000 * sum(spent.values()), "ms of a core", detail=detail))
