"""Events per second from Kafka through the whole job, in each form, and beside the JVM's own per-message state."""

from __future__ import annotations

from statistics import median
from typing import Final

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Batch, running
from tests.benchmarks.jvm import Jvm, Signals
from tests.benchmarks.records import FORM_NAMES, FORMS, Form
from tests.benchmarks.topics import Topic, fill
from tests.services.kafka import Kafka

EVENTS: Final[dict[Form, int]] = {"ndjson": 8_000_000, "single": 4_000_000, "arrow": 20_000_000}
PER_TRIGGER: Final[dict[Form, int]] = {"ndjson": 1_000_000, "single": 500_000, "arrow": 2_000_000}
PROMISED: Final[dict[Form, int]] = {"ndjson": 250_000, "single": 120_000, "arrow": 500_000}
PROMISED_RATIO: Final = 3.0
_RESULTS: Final = ("accepted", "duplicate", "late", "invalid")
WARM_UP: Final = 3
"""Batches left out at the start, while the JVM compiles. The last batch is left out too."""


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """All three forms; the baseline reads the topic of the first."""
    for form in FORMS:
        run.say(f"throughput: {FORM_NAMES[form]}")
        events = EVENTS[form] // (4 if quick else 1)
        per_trigger = PER_TRIGGER[form] // (4 if quick else 1)
        topic = fill(run, kafka, jvm, form, events, parallelism)
        rate = _job(run, kafka, topic, per_trigger, parallelism)
        if form == "ndjson":
            _compare(run, kafka, jvm, topic, per_trigger, parallelism, rate)


def _job(run: Run, kafka: Kafka, topic: Topic, per_trigger: int, parallelism: int) -> float:
    per_batch = per_trigger // topic.events_per_record
    batches = -(-topic.records // per_batch)
    with running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism) as job:
        # The job's own count tells that nothing was lost, not the number of batches.
        job.wait(lambda: len(job.batches()) >= batches and job.accepted() >= topic.events)
        done = job.batches()
        metrics = job.metrics()
    counted = {result: int(metrics.get(f'queuewatch_events_total{{result="{result}"}}', 0)) for result in _RESULTS}
    if counted != {"accepted": topic.events, "duplicate": 0, "late": 0, "invalid": 0}:
        raise RuntimeError(f"{topic.events} events went in, but the job counted {counted}")
    measured = done[WARM_UP : batches - 1]
    rate = per_trigger * len(measured) / sum(batch.duration_s for batch in measured)
    spent = measured[-1].spent - done[WARM_UP - 1].spent
    millions = per_trigger * len(measured) / 1e6
    detail = {
        "events_per_trigger": per_trigger,
        "batches_s": [batch.duration_s for batch in measured],
        "stages_ms": stages_ms(measured),
        "jvm_s_per_million": round(spent.jvm_s / millions, 2),
        "python_s_per_million": round(spent.python_s / millions, 2),
    }
    key, what = f"throughput.{topic.form}", f"from Kafka through the whole job, {FORM_NAMES[topic.form]}"
    run.add(Figure(key, what, rate, "events/s", at_least=PROMISED[topic.form], detail=detail))
    for part, seconds in (("jvm", spent.jvm_s), ("python", spent.python_s)):
        run.add(Figure(f"{key}.{part}_cpu", f"  processor time of {part}", seconds / millions, "s/M events"))
    return rate


_BASELINES: Final[tuple[tuple[Signals, str], ...]] = (
    ("same", "the core signals with Spark's own state, per message and per queue, on the JVM"),
    ("messages", "  signals of single messages only"),
    ("few", "  the same, blind to held messages and with no memory of ended ones"),
)


def _compare(run: Run, kafka: Kafka, jvm: Jvm, topic: Topic, per_trigger: int, parallelism: int, ours: float) -> None:
    """Once with the job's signals, and twice with less."""
    for signals, what in _BASELINES:
        key = f"baseline.{signals}"
        run.say(f"baseline: flatMapGroupsWithState, {what.strip()}")
        per_batch = per_trigger // topic.events_per_record
        batches = jvm.per_message(
            kafka.bootstrap,
            topic.name,
            records=topic.records,
            records_per_trigger=per_batch,
            parallelism=parallelism,
            signals=signals,
            on_batch=lambda batch: run.say(f"    batch {batch.batch_id}: {batch.duration_s:.1f} s"),
        )
        having = [batch for batch in batches if batch.records]
        measured = having[WARM_UP:-1]
        events = sum(batch.records for batch in measured) * topic.events_per_record
        rate = events / sum(batch.duration_s for batch in measured)
        spent_s = measured[-1].spent_s - having[WARM_UP - 1].spent_s
        detail = {
            "batches_s": [batch.duration_s for batch in measured],
            "jvm_s_per_million": round(spent_s / (events / 1e6), 2),
        }
        run.add(Figure(key, what, rate, "events/s", detail=detail))
        bound = PROMISED_RATIO if signals == "same" else None
        run.add(Figure(f"{key}_ratio", "  the job against it", ours / rate, "×", at_least=bound))


def stages_ms(batches: list[Batch]) -> dict[str, float]:
    """The median of each part of a batch, by Spark's names."""
    names = {name for batch in batches for name in batch.durations_ms}
    return {name: median(batch.durations_ms.get(name, 0) for batch in batches) for name in sorted(names)}
