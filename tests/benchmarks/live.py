"""Trigger time and size of the state with very many live messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final, Self

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Job, running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.throughput import WARM_UP, stages_ms
from tests.benchmarks.topics import fill
from tests.services.kafka import Kafka

PER_TRIGGER: Final = 100_000
PROMISED_S: Final = 1.2
PROMISED_BYTES: Final = 30.0


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Preload the live messages, then measure triggers with 100,000 events of their lives."""
    live = 200_000 if quick else 1_000_000
    batches = 8 if quick else 20
    run.say(f"live: {live:,} live messages, {PER_TRIGGER:,} events per trigger")
    topic = fill(run, kafka, jvm, "ndjson", batches * PER_TRIGGER, parallelism, live=live)
    per_batch = PER_TRIGGER // topic.events_per_record
    with running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism) as job:
        preloaded = _preload(job, live)
        job.wait(lambda: job.accepted() >= topic.events)
        done = job.batches()
        ended = State.of(job.metrics())
        checkpoint_bytes = _size(job.folder / "checkpoint")
    if abs(ended.unsettled / live - 1) > 0.1:
        raise RuntimeError(f"{live} messages should be live, but the job tracks {ended.unsettled}")
    measured = done[live // PER_TRIGGER + WARM_UP : -(-topic.records // per_batch) - 1]
    detail = {
        "after_preload": asdict(preloaded),
        "at_the_end": asdict(ended),
        "batches_s": [batch.duration_s for batch in measured],
        "stages_ms": stages_ms(measured),
    }
    what = f"trigger with {live:,} live messages and {PER_TRIGGER:,} events, median"
    trigger_s = median(batch.duration_s for batch in measured)
    run.add(Figure("live.trigger", what, trigger_s, "s", at_most=PROMISED_S, detail=detail))
    run.add(Figure("live.trigger_max", "  the longest", max(batch.duration_s for batch in measured), "s"))
    per_live = preloaded.bytes / preloaded.rows
    run.add(Figure("live.bytes", "state per live message", per_live, "bytes", at_most=PROMISED_BYTES, detail=detail))
    # Live messages cost the same at the end as after the preload; the rest of the state is for ended ones.
    gone = ended.rows - ended.unsettled
    per_ended = (ended.bytes - per_live * ended.unsettled) / max(1, gone)
    run.add(Figure("live.ended_bytes", "  per message that ended within the lateness", per_ended, "bytes"))
    whole = checkpoint_bytes / ended.unsettled
    what = "  whole checkpoint with all versions kept, per live message"
    run.add(Figure("live.checkpoint_bytes", what, whole, "bytes"))


@dataclass(frozen=True, slots=True)
class State:
    """The size of the job's state. `rows` are messages, unsettled or ended within the lateness."""

    unsettled: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Self:
        """Parse from `/metrics`."""
        unsettled = sum(value for key, value in metrics.items() if key.startswith("queuewatch_queue_messages{"))
        rows, size = metrics["queuewatch_pipeline_state_rows"], metrics["queuewatch_pipeline_state_bytes"]
        return cls(int(unsettled), int(rows), int(size))


def _preload(job: Job, live: int) -> State:
    """Return the state at the last poll before any message ended."""
    found: list[State] = []

    def past() -> bool:
        metrics = job.metrics()
        accepted = metrics['queuewatch_events_total{result="accepted"}']
        if 0 < accepted <= live:
            found.append(State.of(metrics))
        return accepted >= live

    job.wait(past)
    if not found:
        raise RuntimeError("the backlog was read within one look: the job publishes too rarely")
    return found[-1]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # an old version was removed in the meantime
    return total
