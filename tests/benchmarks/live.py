"""Trigger time, and the size of the state, with very many live messages."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.throughput import stages_ms
from tests.benchmarks.topics import fill
from tests.services.kafka import Kafka

PER_TRIGGER: Final = 100_000
PROMISED_S: Final = 1.2
PROMISED_BYTES: Final = 30.0


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Preload the live messages, then 100,000 events of their lives per trigger."""
    live = 200_000 if quick else 1_000_000
    batches = 8 if quick else 20
    run.say(f"live: {live:,} live messages, {PER_TRIGGER:,} events per trigger")
    topic = fill(run, kafka, jvm, "ndjson", batches * PER_TRIGGER, parallelism, live=live)
    per_batch = PER_TRIGGER // topic.events_per_record
    warm_up = live // PER_TRIGGER + 3
    with running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism) as job:
        job.wait(lambda: job.accepted() >= topic.events)
        done = job.batches()
        metrics = job.metrics()
        on_disk = _size(job.folder / "checkpoint")
    measured = done[warm_up : -(-topic.records // per_batch) - 1]
    unsettled = sum(value for key, value in metrics.items() if key.startswith("queuewatch_queue_messages{"))
    detail = {
        "unsettled": int(unsettled),
        "rows": int(metrics["queuewatch_pipeline_state_rows"]),
        "state_bytes": int(metrics["queuewatch_pipeline_state_bytes"]),
        "checkpoint_bytes": on_disk,
        "batches_s": [batch.duration_s for batch in measured],
        "stages_ms": stages_ms(measured),
    }
    if abs(unsettled / live - 1) > 0.1:
        raise RuntimeError(f"{live} messages should be live, but the job tracks {unsettled:.0f}")
    what = f"trigger with {live:,} live messages and {PER_TRIGGER:,} events, median"
    trigger_s = median(batch.duration_s for batch in measured)
    run.add(Figure("live.trigger", what, trigger_s, "s", at_most=PROMISED_S, detail=detail))
    longest_s = max(batch.duration_s for batch in measured)
    run.add(Figure("live.trigger_max", "  the longest of them", longest_s, "s"))
    per_message = metrics["queuewatch_pipeline_state_bytes"] / unsettled
    what = "state per live message on disk, those ended within the lateness included"
    run.add(Figure("live.state_bytes", what, per_message, "bytes", at_most=PROMISED_BYTES, detail=detail))
    what = "  per row, live or ended"
    per_row = metrics["queuewatch_pipeline_state_bytes"] / metrics["queuewatch_pipeline_state_rows"]
    run.add(Figure("live.row_bytes", what, per_row, "bytes"))
    run.add(Figure("live.checkpoint", "  whole checkpoint, all kept versions", on_disk / unsettled, "bytes/message"))


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # an old version was removed meanwhile
    return total
