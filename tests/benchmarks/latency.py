"""The age of an event when `/metrics` shows it, at a steady thousand events a second, and of a few records after a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import chain, islice
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
from kafka import KafkaProducer

from tests.benchmarks.batches import batches, ending_at
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Job, running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.records import records
from tests.benchmarks.shape import Shape
from tests.services.kafka import Kafka

EVENTS_PER_S: Final = 1_000
RECORDS_PER_S: Final = 50
LIVE: Final = 100_000
POLL_EVERY_S: Final = 0.03
PROMISED_P50_S, PROMISED_P99_S = 0.7, 1.5
SEVERAL: Final = 3
"""Records sent one after another to one partition, after each pause."""
PAUSE_S: Final = 1.3
SENT_AFTER_S: Final = 0.15
"""The time between these records: each is a batch of its own in Kafka's log."""
PROMISED_PAUSED_S: Final = 0.6


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Send each event at its own time, and watch the count of accepted events on `/metrics`."""
    seconds = 15 if quick else 40
    warm_up_s = 10 if quick else 25
    run.say(f"latency: {EVENTS_PER_S:,} events/s in {RECORDS_PER_S} records/s, {LIVE:,} live messages")
    # There are few queues, to measure the job and not the rendering of a long page 30 times a second.
    shape = Shape(live=LIVE, events_per_s=float(EVENTS_PER_S), queues=10, window_ms=1_000)
    stream = batches(ending_at(shape, int(time.time() * 1000), 0), EVENTS_PER_S)
    topic = kafka.create_topic(partitions=parallelism)
    backlog = islice(stream, LIVE // EVENTS_PER_S)
    values = chain.from_iterable(records(table, "ndjson") for table in backlog)
    jvm.fill(kafka.bootstrap, topic, parallelism, values)
    with running(kafka.bootstrap, topic, records_per_trigger=100_000, parallelism=parallelism) as job:
        job.wait(lambda: job.accepted() >= LIVE)
        per_record = EVENTS_PER_S // RECORDS_PER_S
        values = chain.from_iterable(records(table, "ndjson", per_record) for table in stream)
        sender = Sender(kafka.bootstrap, topic, parallelism, values)
        sender.start()
        time.sleep(warm_up_s)
        seen = watch(job, seconds)
        sender.stop()
        first = len(job.batches())
        paused_s = after_pauses(job, kafka.bootstrap, topic, stream, times=5 if quick else 25)
        trigger_ms = [batch.durations_ms["triggerExecution"] for batch in job.batches()[-10:]]
    ages_s = latencies(sender.sent_at_s(), seen, LIVE)
    detail = {
        "events": len(ages_s),
        "p90_s": round(float(np.quantile(ages_s, 0.9)), 3),
        "max_s": round(float(ages_s.max()), 3),
        "last_triggers_ms": trigger_ms,
        "batches": first,
    }
    for key, share, promised in (("p50", 0.5, PROMISED_P50_S), ("p99", 0.99, PROMISED_P99_S)):
        value = float(np.quantile(ages_s, share))
        what = f"event → /metrics at {EVENTS_PER_S:,} events/s, {key}"
        run.add(Figure(f"latency.{key}", what, value, "s", at_most=promised, detail=detail))
    what = f"event → /metrics, {SEVERAL} records after a pause, median"
    run.add(Figure("latency.paused", what, median(paused_s), "s", at_most=PROMISED_PAUSED_S, detail={"max_s": max(paused_s)}))


class Sender(threading.Thread):
    """Sends a record with the current events every 20 ms, and notes when each was sent."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, values: Iterator[bytes]) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        self._topic = topic
        self._partitions = partitions
        self._values = values
        self._over = threading.Event()
        self._times_s: list[float] = []

    def run(self) -> None:
        """Send until stopped. A sender that falls behind catches up, so the average rate holds."""
        begin = time.time()
        number = 0
        while not self._over.is_set():
            value = next(self._values)
            wait_s = begin + number / RECORDS_PER_S - time.time()
            if wait_s > 0:
                time.sleep(wait_s)
            self._times_s.append(time.time())
            self._producer.send(self._topic, value, partition=number % self._partitions)
            number += 1

    def stop(self) -> None:
        """Stop sending."""
        self._over.set()
        self.join(10)
        self._producer.flush(10)
        self._producer.close()

    def sent_at_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return when each event was passed to the client, in the order of sending."""
        return np.repeat(np.array(self._times_s), EVENTS_PER_S // RECORDS_PER_S)


def after_pauses(job: Job, bootstrap: str, topic: str, stream: Iterator[pa.Table], *, times: int) -> list[float]:
    """Return the seconds until `/metrics` shows some records sent one after another to a partition that had rested."""
    took_s: list[float] = []
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    for _ in range(times):
        time.sleep(PAUSE_S)
        before, events = job.accepted(), 0
        for value in islice(records(next(stream), "ndjson", EVENTS_PER_S // RECORDS_PER_S), SEVERAL):
            time.sleep(SENT_AFTER_S)
            producer.send(topic, value, partition=0).get(10)
            events += EVENTS_PER_S // RECORDS_PER_S
        sent_at = time.monotonic()
        job.wait(lambda expected=before + events: job.accepted() >= expected)  # type: ignore[misc]
        took_s.append(time.monotonic() - sent_at)
    producer.close()
    return took_s


def watch(job: Job, seconds: float) -> list[tuple[float, int]]:
    """Return (time, events accepted) for each increase that `/metrics` shows."""
    seen: list[tuple[float, int]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        accepted = job.accepted()
        if not seen or accepted > seen[-1][1]:
            seen.append((time.time(), accepted))
        time.sleep(POLL_EVERY_S)
    return seen


def latencies(
    sent_at_s: np.ndarray[Any, np.dtype[np.float64]], seen: list[tuple[float, int]], before: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the seconds from sending to showing, for every event first shown after the first poll.

    The n-th event sent counts as shown once n more than `before` are shown. Records are read in turn from all partitions, so
    those of one batch may trade places, which changes no quantile.
    """
    shown_at = np.array([at for at, _ in seen])
    counts = np.array([count for _, count in seen]) - before
    numbers = np.arange(counts[0] + 1, counts[-1] + 1)
    ages_s: np.ndarray[Any, np.dtype[np.float64]]
    ages_s = shown_at[np.searchsorted(counts, numbers)] - sent_at_s[numbers - 1]
    return ages_s
