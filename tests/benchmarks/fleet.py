"""The running job with very many queues: its trigger, `/metrics`, and the memory of all its processes."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from statistics import median
from typing import Final

from kafka import KafkaProducer

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.queues import ManyQueues
from tests.services.kafka import Kafka

QUEUES: Final = 100_000
TOUCHED_RATIO: Final = 0.01
RECORDS_PER_TRIGGER: Final = 1_000
"""As many as arrive in a minute and a half, so that what waits after the first long steps is read at once."""
COUNTED_EVERY_S: Final = 60
"""A collector reports the counts of each queue this often, a part of the queues every second."""
NEW_FOR_S: Final = 540
"""In its first five minutes a queue is judged in every step. That takes half a minute; then steps become shorter one by one."""
MEASURED_S: Final = 60
MEMORY: Final = "2g"
"""Of Java: the default of `spark.driver_memory`."""
_GIB: Final = 1 << 30


def measure(run: Run, kafka: Kafka, _jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Report queues and their messages to a job, and once it has known them for five minutes, touch some in every step."""
    queues, new_for_s, measured_s = (QUEUES // 50, 20, 10) if quick else (QUEUES, NEW_FOR_S, MEASURED_S)
    touched = int(queues * TOUCHED_RATIO)
    run.say(f"fleet: {queues:,} queues in the running job; takes {new_for_s + measured_s} s and the start")
    load = ManyQueues(queues, start_ms=_now_ms(), step_ms=1_000, touched_ratio=TOUCHED_RATIO)
    topic = kafka.create_topic(partitions=parallelism)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)

    def send(records: Sequence[bytes]) -> None:
        for record in records:
            producer.send(topic, record)
        producer.flush()

    begin = load.begin()
    send(begin)
    with running(kafka.bootstrap, topic, records_per_trigger=RECORDS_PER_TRIGGER, parallelism=parallelism, memory=MEMORY) as job:
        # `/metrics` of so many queues would tell as well, and take much longer.
        job.wait(lambda: len(job.batches()) >= len(begin) / RECORDS_PER_TRIGGER)
        began = time.monotonic()

        def touch(until_s: float) -> None:
            while time.monotonic() - began < until_s:
                send(load.step(touched, after_ms=_now_ms() - load.now_ms, counted=queues // COUNTED_EVERY_S))
                time.sleep(max(0.0, 1.0 - (time.time() * 1000 - load.now_ms) / 1000))

        touch(new_for_s)
        first = len(job.batches())
        touch(new_for_s + measured_s)
        took = [batch.duration_s for batch in job.batches()[first:]]
        memory_gib = job.memory_bytes() / _GIB
        page_s = [_page_s(job.url) for _ in range(3)]
        scraped_gib = job.memory_bytes() / _GIB
    detail = {"batches_s": took, "page_s": page_s}
    what = f"{queues:,} queues in the running job, {touched:,} touched a second: trigger, median"
    run.add(Figure("fleet.trigger", what, median(took), "s", detail=detail))
    run.add(Figure("fleet.trigger_max", "  the longest", max(took), "s"))
    run.add(Figure("fleet.memory", "  memory of all processes", memory_gib, "GiB"))
    run.add(Figure("fleet.metrics", "  /metrics, compressed, median", median(page_s), "s"))
    run.add(Figure("fleet.scraped_memory", "  memory of all processes once it was read", scraped_gib, "GiB"))


def _page_s(url: str) -> float:
    """Return how long it takes to read `/metrics`, compressed."""
    begin = time.monotonic()
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
    return time.monotonic() - begin


def _now_ms() -> int:
    return int(time.time() * 1000)
