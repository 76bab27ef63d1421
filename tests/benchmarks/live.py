"""Trigger time, memory and size of the state with very many live messages, and a start from such a state."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Self

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Job, running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.throughput import WARM_UP, stages_ms
from tests.benchmarks.topics import fill
from tests.services.kafka import Kafka

PER_TRIGGER: Final = 100_000
PROMISED_BYTES: Final = 30.0
PROMISED_START_S: Final = 30.0
_GIB: Final = 1 << 30


class Size(NamedTuple):
    """A number of live messages, and what is promised with it."""

    key: str
    live: int
    trigger_s: float
    batches: int
    memory_gib: float | None = None
    checkpoint_bytes: float | None = None
    """Per live message, with all versions."""


MILLION: Final = Size("live", 1_000_000, trigger_s=1.2, batches=20, checkpoint_bytes=65)
LARGE: Final = Size("large", 5_000_000, trigger_s=2.0, batches=12, memory_gib=8, checkpoint_bytes=65)
QUICK: Final = Size("live", 200_000, trigger_s=1.2, batches=8)


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Preload a million live messages, measure triggers with 100,000 events of their lives, then a start from the checkpoint."""
    _measure(run, kafka, jvm, parallelism, QUICK if quick else MILLION, restart=True)


def measure_large(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """The same with five million live messages, without the start."""
    _measure(run, kafka, jvm, parallelism, QUICK._replace(key="large") if quick else LARGE, restart=False)


def _measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, size: Size, *, restart: bool) -> None:
    live = size.live
    run.say(f"{size.key}: {live:,} live messages, {PER_TRIGGER:,} events per trigger")
    topic = fill(run, kafka, jvm, "ndjson", size.batches * PER_TRIGGER, parallelism, live=live)
    per_batch = PER_TRIGGER // topic.events_per_record
    with tempfile.TemporaryDirectory(prefix="queuewatch-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)

        def opened() -> AbstractContextManager[Job]:
            return running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism, into=folder)

        with opened() as job:
            preloaded = _preload(job, live)
            job.wait(lambda: job.accepted() >= topic.events)
            done = job.batches()
            ended = State.of(job.metrics())
            memory_gib = job.memory_bytes() / _GIB
            checkpoint_bytes = _size(folder / "checkpoint")
        if restart:
            start_s = _start(opened)
    if abs(ended.unsettled / live - 1) > 0.1:
        raise RuntimeError(f"{live} messages should be live, but the job tracks {ended.unsettled}")
    measured = done[live // PER_TRIGGER + WARM_UP : -(-topic.records // per_batch) - 1]
    detail = {
        "after_preload": asdict(preloaded),
        "at_the_end": asdict(ended),
        "batches_s": [batch.duration_s for batch in measured],
        "stages_ms": stages_ms(measured),
    }
    key, each = size.key, f"{live:,} live messages"
    trigger_s = median(batch.duration_s for batch in measured)
    what = f"trigger with {each} and {PER_TRIGGER:,} events, median"
    run.add(Figure(f"{key}.trigger", what, trigger_s, "s", at_most=size.trigger_s, detail=detail))
    run.add(Figure(f"{key}.trigger_max", "  the longest", max(batch.duration_s for batch in measured), "s"))
    what = f"  memory of all processes with {each}"
    run.add(Figure(f"{key}.memory", what, memory_gib, "GiB", at_most=size.memory_gib))
    per_live = preloaded.bytes / preloaded.rows
    run.add(Figure(f"{key}.bytes", "state per live message", per_live, "bytes", at_most=PROMISED_BYTES, detail=detail))
    # Live messages cost the same at the end as after the preload; the rest of the state is for ended ones.
    gone = ended.rows - ended.unsettled
    per_ended = (ended.bytes - per_live * ended.unsettled) / max(1, gone)
    run.add(Figure(f"{key}.ended_bytes", "  per message that ended within the lateness", per_ended, "bytes"))
    what = "  whole checkpoint with all versions kept, per live message"
    per_message = checkpoint_bytes / ended.unsettled
    run.add(Figure(f"{key}.checkpoint_bytes", what, per_message, "bytes", at_most=size.checkpoint_bytes))
    if restart:
        run.add(Figure(f"{key}.start", f"start from the checkpoint with {each} to ready", start_s, "s", at_most=PROMISED_START_S))


def _start(opened: Callable[[], AbstractContextManager[Job]]) -> float:
    """Return the seconds from starting the command until the service says that it is ready."""
    begin = time.monotonic()
    with opened() as job:
        job.wait(job.is_ready)
        return time.monotonic() - begin


@dataclass(frozen=True, slots=True)
class State:
    """The size of the job's state. `rows` are messages, unsettled or ended within the lateness."""

    unsettled: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Self:
        """Parse from `/metrics`."""
        unsettled = sum(value for key, value in metrics.items() if key.startswith("queuewatch_tracked_messages{"))
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
