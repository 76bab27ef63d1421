"""The running job with very many queues: its trigger, `/metrics`, and the memory of all its processes."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event
from typing import Final

from kafka import KafkaProducer

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Job, running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.queues import ManyQueues
from tests.services.kafka import Kafka

QUEUES: Final = 100_000
TOUCHED_RATIO: Final = 0.01
RECORDS_PER_TRIGGER: Final = 1_000
"""As many as arrive in a minute and a half, so that what waits after the first long steps is read at once."""
COUNTED_EVERY_S: Final = 60
"""A collector reports the counts of each queue this often, a part of the queues every second."""
LATEST_S: Final = 10.0
NEW_FOR_S: Final = 300
"""Until the counts have agreed for this long, each of them is compared: steps are longer."""
SETTLES_FOR_S: Final = 240
"""Then steps become shorter one by one."""
MEASURED_S: Final = 60
MEMORY: Final = "2g"
"""Of Java: the default of `spark.driver_memory`."""
_GIB: Final = 1 << 30


def measure(run: Run, kafka: Kafka, _jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Report queues and their messages to a job, and once it has known them for five minutes, touch some in every step."""
    queues, new_for_s, settles_for_s, measured_s = (
        (QUEUES // 50, 10, 10, 10) if quick else (QUEUES, NEW_FOR_S, SETTLES_FOR_S, MEASURED_S)
    )
    touched = int(queues * TOUCHED_RATIO)
    run.say(f"fleet: {queues:,} queues in the running job; takes {new_for_s + settles_for_s + measured_s} s and the start")
    load = ManyQueues(queues, start_ms=_now_ms(), step_ms=1_000, touched_ratio=TOUCHED_RATIO)
    topic = kafka.create_topic(partitions=parallelism)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)

    def send(records: Sequence[bytes]) -> None:
        for record in records:
            producer.send(topic, record)
        producer.flush()

    def touch(until: Event) -> None:
        while not until.wait(max(0.0, 1.0 - (time.time() * 1000 - load.now_ms) / 1000)):
            # A call that comes late touches more, or on a busy machine all queues would fall behind, and be judged in every step.
            after_ms = _now_ms() - load.now_ms
            seconds = min(after_ms / 1000, LATEST_S)
            send(load.step(int(touched * seconds), after_ms=after_ms, counted=int(queues / COUNTED_EVERY_S * seconds)))

    begin = load.begin()
    send(begin)
    with running(kafka.bootstrap, topic, records_per_trigger=RECORDS_PER_TRIGGER, parallelism=parallelism, memory=MEMORY) as job:
        # `/metrics` of so many queues would tell as well, and take much longer.
        job.wait(lambda: len(job.batches()) >= len(begin) / RECORDS_PER_TRIGGER)
        done = Event()
        with ThreadPoolExecutor(1) as pool:
            # Also while `/metrics` is read: after five minutes without a message received, all queues would be stalled.
            touching = pool.submit(touch, done)
            try:
                new_s = _triggers_of(job, new_for_s)
                _triggers_of(job, settles_for_s)
                took_s = _triggers_of(job, measured_s)
                memory_gib = job.memory_bytes() / _GIB
                page_s = [_page_s(job.url) for _ in range(3)]
                scraped_gib = job.memory_bytes() / _GIB
            finally:
                done.set()
            touching.result()
    what = f"{queues:,} queues in the running job, {touched:,} touched a second: trigger, median"
    run.add(Figure("fleet.trigger", what, median(took_s), "s", detail={"batches_s": took_s, "page_s": page_s}))
    run.add(Figure("fleet.trigger_max", "  the longest", max(took_s), "s"))
    what = f"  the same in the first {new_for_s} s, when all are new"
    run.add(Figure("fleet.new", what, median(new_s), "s", detail={"batches_s": new_s}))
    run.add(Figure("fleet.memory", "  memory of all processes", memory_gib, "GiB"))
    run.add(Figure("fleet.metrics", "  /metrics, compressed, median", median(page_s), "s"))
    run.add(Figure("fleet.scraped_memory", "  memory of all processes once it was read", scraped_gib, "GiB"))


def _triggers_of(job: Job, seconds: float) -> list[float]:
    """Wait, and return how long each batch took that was committed meanwhile."""
    first = len(job.batches())
    time.sleep(seconds)
    return [batch.duration_s for batch in job.batches()[first:]]


def _page_s(url: str) -> float:
    """Return how long it takes to read `/metrics`, compressed."""
    begin = time.monotonic()
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
    return time.monotonic() - begin


def _now_ms() -> int:
    return int(time.time() * 1000)
