"""Loads of an uncommon shape: one queue with nearly all of the traffic, and one FIFO queue with a long backlog."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.job import Batch, running
from tests.benchmarks.jvm import Jvm
from tests.benchmarks.lines import json_records, message_id
from tests.benchmarks.shape import Shape
from tests.benchmarks.throughput import WARM_UP, stages_ms
from tests.benchmarks.topics import Topic, fill
from tests.services.kafka import Kafka

HOT_RATIO: Final = 0.9
PROMISED_HOT_RATIO: Final = 1.3
EVENTS: Final = 3_000_000
PER_TRIGGER: Final = 500_000

FIFO_MESSAGES: Final = 150_000
FIFO_GROUPS: Final = 5_000
PROMISED_FIFO_S: Final = 0.8
_FIFO_PER_STEP: Final = 333
"""Messages received, deleted and sent in a second: a thousand events."""
_FIFO_STEPS: Final = 40


def measure(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    """Compare a hot queue with an even load, then measure triggers beside a long FIFO backlog."""
    _hot(run, kafka, jvm, parallelism, quick=quick)
    _fifo(run, kafka, jvm, parallelism, FIFO_MESSAGES // 10 if quick else FIFO_MESSAGES)


def _hot(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, *, quick: bool) -> None:
    events, per_trigger = (EVENTS // 5, PER_TRIGGER // 5) if quick else (EVENTS, PER_TRIGGER)
    shapes = {"even": Shape(queue_skew=0), "hot": Shape(queue_skew=0, hot_ratio=HOT_RATIO)}
    topics = {}
    for name, shape in shapes.items():
        run.say(f"shapes: {name} load of {events:,} events")
        topics[name] = fill(run, kafka, jvm, "ndjson", events, parallelism, shape=shape)
    batches: dict[str, list[Batch]] = {"even": [], "hot": []}
    # In turns, because the speed of a shared machine varies.
    for name in ("even", "hot", "hot", "even"):
        run.say(f"shapes: the {name} load through the job")
        batches[name] += _through_job(kafka, topics[name], per_trigger // topics[name].events_per_record, parallelism)
    even_s, hot_s = (median(batch.duration_s for batch in batches[name]) for name in ("even", "hot"))
    detail = {name: {"batches_s": [b.duration_s for b in of], "stages_ms": stages_ms(of)} for name, of in batches.items()}
    run.add(Figure("shapes.even", f"trigger with {per_trigger:,} events, 200 queues alike, median", even_s, "s", detail=detail))
    what = f"  one queue with {HOT_RATIO:.0%} of them, against that"
    run.add(Figure("shapes.hot_ratio", what, hot_s / even_s, "×", at_most=PROMISED_HOT_RATIO))


def _through_job(kafka: Kafka, topic: Topic, per_batch: int, parallelism: int) -> list[Batch]:
    """Return the batches of a run of the job, without the first and the last."""
    with running(kafka.bootstrap, topic.name, records_per_trigger=per_batch, parallelism=parallelism) as job:
        job.wait(lambda: job.accepted() >= topic.events)
        return job.batches()[WARM_UP : topic.records // per_batch - 1]


def _fifo(run: Run, kafka: Kafka, jvm: Jvm, parallelism: int, messages: int) -> None:
    groups = messages * FIFO_GROUPS // FIFO_MESSAGES
    run.say(f"shapes: a FIFO queue with {messages:,} messages in {groups:,} groups")
    topic = kafka.create_topic(partitions=parallelism)
    load = LongFifo(messages, groups, int(time.time() * 1000) - 1_000 * _FIFO_STEPS)
    steps = [record for _ in range(_FIFO_STEPS) for record in load.step()]
    per_step = len(steps) // _FIFO_STEPS
    backlog = load.backlog()
    records = jvm.fill(kafka.bootstrap, topic, parallelism, [*backlog, *steps])
    with running(kafka.bootstrap, topic, records_per_trigger=per_step, parallelism=parallelism) as job:
        job.wait(lambda: job.accepted() >= load.events)
        done = job.batches()
    measured = done[len(backlog) // per_step + WARM_UP : records // per_step - 1]
    detail = {"batches_s": [batch.duration_s for batch in measured], "stages_ms": stages_ms(measured)}
    trigger_s = median(batch.duration_s for batch in measured)
    what = f"trigger of a FIFO queue with {messages:,} messages in {groups:,} groups, 1,000 events, median"
    run.add(Figure("shapes.fifo", what, trigger_s, "s", at_most=PROMISED_FIFO_S, detail=detail))
    spent = measured[-1].spent - measured[0].spent
    cores_s = (spent.jvm_s + spent.python_s) / (len(measured) - 1)
    run.add(Figure("shapes.fifo_cpu", "  processor time of a trigger, all processes", cores_s, "s of a core"))


class LongFifo:
    """A FIFO queue whose groups all have a backlog: in a step, the heads of some groups are processed and as many are sent."""

    def __init__(self, messages: int, groups: int, start_ms: int) -> None:
        self.events = 0
        """Events made so far."""
        self._now = start_ms
        self._groups = groups
        self._sent = 0
        self._done = 0
        self._backlog = [self._send() for _ in range(messages)]

    def backlog(self) -> list[bytes]:
        """Return the records with the messages that wait at the start, and the broker's count of them."""
        counts = {"kind": "fifo", "visible": len(self._backlog), "in_flight": 0, "visibility_timeout_s": 30}
        first = _event("queue_state", self._backlog[0]["at"], {"attributes": counts})
        self.events += 1
        return json_records([first, *self._backlog])

    def step(self) -> list[bytes]:
        """Return the records of the next second."""
        self._now += 1_000
        events: list[dict[str, Any]] = []
        for _ in range(_FIFO_PER_STEP):
            head = {"message_id": message_id(0, self._done), "group": f"customer-{self._done % self._groups}"}
            events.append(_event("received", self._now, head | {"receive_count": 1, "consumer": f"worker-{self._done % 8}"}))
            events.append(_event("deleted", self._now + 200, head))
            self._done += 1
            events.append(self._send())
        self.events += 2 * _FIFO_PER_STEP
        return json_records(events)

    def _send(self) -> dict[str, Any]:
        number, self._sent = self._sent, self._sent + 1
        self.events += 1
        about = {"message_id": message_id(0, number), "group": f"customer-{number % self._groups}", "sequence": f"{number:020d}"}
        return _event("sent", self._now, about)


def _event(kind: str, at: int, about: Mapping[str, Any]) -> dict[str, Any]:
    return {"v": 1, "type": kind, "at": at, "system": "aws_sqs", "scope": "eu-west-1", "queue": "orders.fifo", **about}
