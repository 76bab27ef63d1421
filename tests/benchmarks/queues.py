"""The cost of a step by the number of known queues, when few of them have events."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from sinks.prometheus import Exposition
from streaming.core.gc_pause import gc_paused
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.lines import json_records, message_id
from tests.benchmarks.micro import Chain

MESSAGES_PER_QUEUE: Final = 3
WITHOUT_DEAD_LETTER_QUEUE: Final = 3
"""One in so many queues has none."""
TOUCHED_RATIO: Final = 0.1
STEPS: Final = ("touched", "untouched", "counted")
WARM_UP_STEP_MS: Final = 10_000
MOST_MS: Final = {
    "queues.10000.touched": 800.0,
    "queues.10000.untouched": 150.0,
    "queues.10000.counted": 1_200.0,
    "queues.fifo.10000.untouched": 300.0,
    "queues.activemq.10000.untouched": 400.0,
}
"""Promised limits, in milliseconds of a core."""
GROUPS_PER_FIFO_QUEUE: Final = 5
CONSUMERS_PER_QUEUE: Final = 5
"""Of ActiveMQ."""
Kind = Literal["standard", "fifo", "activemq"]
NAMES: Final[Mapping[Kind, str]] = {"standard": "", "fifo": " FIFO", "activemq": " ActiveMQ"}
MOST_METRICS_MS: Final = {(10_000, "again"): 300.0, (10_000, "touched"): 300.0}
_START_MS: Final = 1_700_000_000_000


class ManyQueues:
    """Queues with a few messages each. A step touches some of them: one message is deleted and another sent."""

    def __init__(
        self,
        queues: int,
        *,
        start_ms: int = _START_MS,
        step_ms: int = WARM_UP_STEP_MS,
        touched_ratio: float = TOUCHED_RATIO,
        kind: Kind = "standard",
    ) -> None:
        """`step_ms`: the time between the steps of the warm-up, each of which touches this ratio of the queues."""
        self.queues, self.kind = queues, kind
        self.step_ms = step_ms
        self._touched_ratio = touched_ratio
        self._now = start_ms
        self._next = [0] * queues
        self._turn = self._counted_turn = 0

    @property
    def now_ms(self) -> int:
        """The time of the last step."""
        return self._now

    def begin(self) -> list[bytes]:
        """Return records with all queues, their messages and the broker's counts."""
        events: list[dict[str, object]] = []
        for number in range(MESSAGES_PER_QUEUE):
            for queue in range(self.queues):
                # As old as after an endless warm-up; otherwise every queue would seem to fall behind at first.
                waited = MESSAGES_PER_QUEUE - number - self._touched_ratio * (1 + queue // (self._touched_ratio * self.queues))
                events.append(self._sent(queue) | {"at": self._now - int(waited * self.step_ms / self._touched_ratio)})
        return json_records([*events, *self._counts(range(self.queues))])

    def step(self, touched: int, *, after_ms: int = 1_000, counted: int = 0) -> list[bytes]:
        """Return the records of one step: it touches `touched` queues in turn, and reports the counts of others in turn."""
        self._now += after_ms
        events: list[dict[str, object]] = []
        for i in range(touched):
            queue = (self._turn + i) % self.queues
            oldest = self._message(queue, self._next[queue] - MESSAGES_PER_QUEUE) | {"consumer": _consumer(queue % 4)}
            events.append(self._event("received", queue, oldest | {"receive_count": 1}))
            events.append(self._event("deleted", queue, oldest))
            events.append(self._sent(queue))
        self._turn += touched
        self._counted_turn += counted
        at = range(self._counted_turn - counted, self._counted_turn)
        return json_records([*events, *self._counts(number % self.queues for number in at)])

    def _sent(self, queue: int) -> dict[str, object]:
        self._next[queue] += 1
        return self._event("sent", queue, self._message(queue, self._next[queue] - 1))

    def _message(self, queue: int, number: int) -> dict[str, object]:
        group = {"group": f"customer-{number % GROUPS_PER_FIFO_QUEUE}"} if self.kind == "fifo" else {}
        return {"message_id": message_id(queue, number), **group}

    def _counts(self, queues: Iterable[int]) -> Iterator[dict[str, object]]:
        counts: dict[str, object] = {"visible": MESSAGES_PER_QUEUE, "in_flight": 0, "delayed": 0}
        if self.kind != "activemq":
            counts |= {"visibility_timeout_s": 30, "retention_s": 345_600, "kind": self.kind}
        policy = {"max_receive_count": 5, "dead_letter_queue": "dlq.fifo" if self.kind == "fifo" else "dlq"}
        for queue in queues:
            # QueueMisconfigured fires for good about those without a dead-letter queue.
            about = counts | (policy if queue % WITHOUT_DEAD_LETTER_QUEUE else {})
            yield self._event("queue_state", queue, {"attributes": about})
            for number in range(CONSUMERS_PER_QUEUE if self.kind == "activemq" else 0):
                client = {"client_id": f"shop-{number}", "connected_at": _START_MS}
                state = {"connected": True, "prefetch": 1000, "dispatched": 0} | client
                yield self._event("consumer_state", queue, {"consumer": _consumer(number), "attributes": state})

    def _event(self, kind: str, queue: int, about: Mapping[str, object]) -> dict[str, object]:
        system, scope = ("activemq", "broker-1") if self.kind == "activemq" else ("aws_sqs", "eu-west-1")
        named = {"system": system, "scope": scope, "queue": f"orders-{queue:06d}" + (".fifo" if self.kind == "fifo" else "")}
        return {"v": 1, "type": kind, "at": self._now, **named, **about}


def _consumer(number: int) -> str:
    return f"ID:worker-{number}:1:1"


def measure(run: Run, *, quick: bool) -> None:
    """Measure steps in which a tenth of the queues is touched, none is, and all are counted."""
    run.say("queues: a step by the number of queues known")
    fewer: tuple[int, float] | None = None
    for queues in (200, 2_000) if quick else (200, 2_000, 10_000, 100_000):
        # In its first five minutes each count of a queue is compared. For 100,000 that takes long: few steps, but not so far
        # apart that a queue seems to stand still in between, for those are judged in every step.
        if queues > 10_000:
            untouched_ms = _measure(run, ManyQueues(queues, step_ms=25_000), 16, 1, STEPS[:2])
        else:
            untouched_ms = _measure(run, ManyQueues(queues), warm_up=40, counted_every=6, steps=STEPS)
        if fewer is not None:
            # A step has costs that do not depend on the number of queues.
            each_us = 1000 * (untouched_ms - fewer[1]) / (queues - fewer[0])
            what = f"{queues:,} queues: an untouched one, beyond {fewer[0]:,}"
            run.add(Figure(f"queues.{queues}.each", what, each_us, "µs of a core"))
        fewer = queues, untouched_ms
    for queues in (200,) if quick else (1_000, 10_000):
        _measure(run, ManyQueues(queues, kind="fifo"), warm_up=12, counted_every=6, steps=STEPS[:2])
        _measure(run, ManyQueues(queues, kind="activemq"), warm_up=40, counted_every=3, steps=STEPS)


def _measure(run: Run, load: ManyQueues, warm_up: int, counted_every: int, steps: Sequence[str]) -> float:
    """Return the milliseconds of a step that touches no queue."""
    untouched_ms = 0.0
    queues, chain = load.queues, Chain("ndjson")
    chain.take(load.begin(), load.now_ms)
    for i in range(1, warm_up + 1):
        records = load.step(int(queues * TOUCHED_RATIO), after_ms=load.step_ms, counted=0 if i % counted_every else queues)
        chain.take(records, load.now_ms)
    few = int(queues * (0.01 if queues > 10_000 else TOUCHED_RATIO))
    name = f"{queues:,}{NAMES[load.kind]} queues"
    for step_of, words, times, step in (
        ("touched", f"{few:,} of them touched", 5, lambda: load.step(few)),
        ("untouched", "none touched", 5, lambda: load.step(0)),
        ("counted", "all counted by the broker", 3, lambda: load.step(0, counted=queues)),
    ):
        if step_of not in steps:
            continue
        spent = chain.median_of(times, lambda step=step: (step(), load.now_ms))  # type: ignore[misc]
        detail = {of: round(1000 * seconds, 2) for of, seconds in spent.items()}
        total = 1000 * sum(spent.values())
        key = f"queues.{'' if load.kind == 'standard' else f'{load.kind}.'}{queues}.{step_of}"
        what = f"{name}, {words}: all steps"
        run.add(Figure(key, what, total, "ms of a core", at_most=MOST_MS.get(key), detail=detail))
        if step_of == "untouched":
            untouched_ms = total
    if load.kind == "standard":
        _pages(run, queues, chain, load)
    return untouched_ms


def _pages(run: Run, queues: int, chain: Chain, load: ManyQueues) -> None:
    """Measure rendering `/metrics` compressed for so many queues, once their views are built: at first, again, after a step."""
    exposition = Exposition(process_metrics=False)
    for key, words in (
        ("first", "/metrics, first"),
        ("again", "/metrics, again"),
        ("touched", f"/metrics, after a step that touched {int(queues * TOUCHED_RATIO):,}"),
    ):
        if key == "touched":
            chain.take(load.step(int(queues * TOUCHED_RATIO)), load.now_ms)
        snapshot = chain.snapshot
        assert snapshot is not None
        # Collecting garbage takes as long as all of this, and falls into one of the three by chance.
        gc.collect()
        with gc_paused():
            begin = time.process_time()
            list(snapshot.rows())
            views = round(1000 * (time.process_time() - begin), 1)
            begin = time.process_time()
            body = exposition.render_gzip(snapshot, snapshot.at_ms)
            spent = 1000 * (time.process_time() - begin)
        text = exposition.render(snapshot, snapshot.at_ms)
        detail = {"bytes": len(body), "of_text": len(text), "series": text.count(b"\n") - text.count(b"# "), "views_ms": views}
        bound = MOST_METRICS_MS.get((queues, key))
        name = f"queues.{queues}.metrics.{key}"
        run.add(Figure(name, f"{queues:,} queues: {words}", spent, "ms of a core", at_most=bound, detail=detail))
