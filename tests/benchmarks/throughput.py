"""Events per second from Kafka through the whole job, in each form, compared with per-message state in the JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Batch, running
from tests.benchmarks.jvm import Jvm, Signals
from tests.benchmarks.processes import Spent
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


@dataclass(frozen=True)
class _Read:
    """Complete batches of one run of the job, and their processor time."""

    batches: list[Batch]
    spent: Spent

    def __add__(self, other: _Read) -> _Read:
        return _Read(self.batches + other.batches, self.spent + other.spent)


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Measure all three forms; the baselines read the topic of the first."""
    for form in FORMS:
        run.say(f"throughput: {FORM_NAMES[form]}")
        events = EVENTS[form] // (4 if quick else 1)
        per_trigger = PER_TRIGGER[form] // (4 if quick else 1)
        topic = fill(run, kafka, jvm, form, events, parallelism)
        job = _job(kafka, topic, per_trigger, parallelism)
        baselines: dict[Signals, tuple[float, dict[str, Any]]] = {}
        if form == "ndjson":
            # The speed of a shared machine varies, so the job runs before and after the baseline.
            baselines["same"] = _baseline(run, kafka, jvm, topic, per_trigger, parallelism, "same")
            run.say(f"throughput: {FORM_NAMES[form]}, again")
            job += _job(kafka, topic, per_trigger, parallelism)
            for signals in _LESSER:
                baselines[signals] = _baseline(run, kafka, jvm, topic, per_trigger, parallelism, signals)
        _show(run, form, per_trigger, job, baselines)


def _job(kafka: Kafka, topic: Topic, per_trigger: int, parallelism: int) -> _Read:
    per_batch = per_trigger // topic.events_per_record
    batches = -(-topic.records // per_batch)
    with running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism) as job:
        # The job's own count shows that nothing was lost; the number of batches does not.
        job.wait(lambda: len(job.batches()) >= batches and job.accepted() >= topic.events)
        done = job.batches()
        metrics = job.metrics()
    counted = {result: int(metrics.get(f'queuewatch_events_total{{result="{result}"}}', 0)) for result in _RESULTS}
    if counted != {"accepted": topic.events, "duplicate": 0, "late": 0, "invalid": 0}:
        raise RuntimeError(f"{topic.events} events went in, but the job counted {counted}")
    measured = done[WARM_UP : batches - 1]
    return _Read(measured, measured[-1].spent - done[WARM_UP - 1].spent)


_BASELINES: Final[dict[Signals, str]] = {
    "same": "the core signals with Spark's own state, per message and per queue, on the JVM",
    "messages": "  signals of single messages only",
    "few": "  the same, blind to held messages and with no memory of ended ones",
}

_LESSER: Final[tuple[Signals, ...]] = ("messages", "few")


def _baseline(
    run: Run, kafka: Kafka, jvm: Jvm, topic: Topic, per_trigger: int, parallelism: int, signals: Signals
) -> tuple[float, dict[str, Any]]:
    """Return events per second, and details of the measurement."""
    run.say(f"baseline: flatMapGroupsWithState, {_BASELINES[signals].strip()}")
    batches = jvm.per_message(
        kafka.bootstrap,
        topic.name,
        records=topic.records,
        records_per_trigger=per_trigger // topic.events_per_record,
        parallelism=parallelism,
        signals=signals,
        on_batch=lambda batch: run.say(f"    batch {batch.batch_id}: {batch.duration_s:.1f} s"),
    )
    having = [batch for batch in batches if batch.records]
    measured = having[WARM_UP:-1]
    events = sum(batch.records for batch in measured) * topic.events_per_record
    spent_s = measured[-1].spent_s - having[WARM_UP - 1].spent_s
    detail = {
        "batches_s": [batch.duration_s for batch in measured],
        "jvm_s_per_million": round(spent_s / (events / 1e6), 2),
    }
    return events / sum(batch.duration_s for batch in measured), detail


def _show(run: Run, form: Form, per_trigger: int, job: _Read, baselines: Mapping[Signals, tuple[float, dict[str, Any]]]) -> None:
    events = per_trigger * len(job.batches)
    ours = events / sum(batch.duration_s for batch in job.batches)
    detail = {
        "events_per_trigger": per_trigger,
        "batches_s": [batch.duration_s for batch in job.batches],
        "stages_ms": stages_ms(job.batches),
    }
    key, what = f"throughput.{form}", f"from Kafka through the whole job, {FORM_NAMES[form]}"
    run.add(Figure(key, what, ours, "events/s", at_least=PROMISED[form], detail=detail))
    for part, seconds in (("jvm", job.spent.jvm_s), ("python", job.spent.python_s)):
        run.add(Figure(f"{key}.{part}_cpu", f"  processor time of {part}", seconds / (events / 1e6), "s/M events"))
    for signals, (rate, how) in baselines.items():
        run.add(Figure(f"baseline.{signals}", _BASELINES[signals], rate, "events/s", detail=how))
        bound = PROMISED_RATIO if signals == "same" else None
        run.add(Figure(f"baseline.{signals}_ratio", "  the job against it", ours / rate, "×", at_least=bound))


def stages_ms(batches: list[Batch]) -> dict[str, float]:
    """Return the median of each part of a batch, by Spark's names."""
    names = {name for batch in batches for name in batch.durations_ms}
    return {name: median(batch.durations_ms.get(name, 0) for batch in batches) for name in sorted(names)}
