"""What `collect sqs` reports, and how it stops, while SQS answers slowly or not at all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

import sources.sqs.collector
import sources.sqs.parallel
from sources.sqs.account import AccountReader
from sources.sqs.collector import SqsCollector
from sources.sqs.config import DiscoveryConfig, SqsCollectorConfig
from sources.sqs.parallel import in_slices
from tests.sources.sqs.accounts import PLAIN, Fake

RUNNING = threading.Event()
"""It is never stopped."""


class Hanging(Fake):
    """A client of which one operation, about one queue, does not return before it is released."""

    def __init__(self, queues: dict[str, dict[str, str]], operation: str, name: str = "") -> None:
        super().__init__(queues)
        self.hangs = (operation, name)
        self.hanging, self.release = threading.Event(), threading.Event()

    def _called(self, operation: str, where: str) -> str:
        if (operation, where.rsplit("/", 1)[-1]) == self.hangs:
            self.hanging.set()
            self.release.wait(20)
        return super()._called(operation, where)


def run(fake: Any, emit: Callable[[Any], None], stop: threading.Event, **config: Any) -> threading.Thread:
    """Start a collector; return its thread."""
    collector = SqsCollector(SqsCollectorConfig(**{"interval_s": 0.05, **config}), [fake])
    thread = threading.Thread(target=collector.run, args=(emit, stop), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("operation", ["ListQueues", "ListQueueTags", "GetQueueAttributes"])
def test_a_stop_does_not_wait_for_a_call_that_sqs_does_not_answer(operation: str) -> None:
    """With its retries a call takes a minute, and an account of 1,000 queues took hours. Its threads end with the process."""
    fake = Hanging({"orders": PLAIN, "payments": PLAIN}, operation, "" if operation == "ListQueues" else "orders")
    stop = threading.Event()
    found: list[Any] = []
    thread = run(fake, found.extend, stop, concurrency=1)
    assert fake.hanging.wait(10)
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("queuewatch-sqs"))
    calls = len(fake.calls)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert [event for event in found if event["type"] == "queue_state"] == []
    fake.release.set()
    assert len(fake.calls) <= calls + 2  # no further queue is begun


@pytest.mark.parametrize("error", [ReadTimeoutError, ConnectTimeoutError])
def test_a_pass_is_given_up_after_five_calls_in_a_row_without_an_answer(error: Any) -> None:
    """Each takes a minute. A denied call is answered; and what was not read is read in the next pass."""
    fake: Any = Fake({f"q{n:02d}": PLAIN for n in range(40)})
    answering = fake.get_queue_attributes

    def silent(**_: Any) -> Any:
        fake.calls.append("silent")
        raise error(endpoint_url="https://sqs")

    reader = AccountReader(fake, DiscoveryConfig(with_dead_letter_queues=False), concurrency=1)
    reader.discover(RUNNING)
    fake.get_queue_attributes = silent
    assert list(reader.read(RUNNING)) == []
    assert [problem.unanswered for problem in reader.take_problems()] == [True] * 5
    assert fake.calls.count("silent") == 5
    fake.get_queue_attributes = answering
    fake.fail = {"GetQueueAttributes": "AccessDenied"}
    assert list(reader.read(RUNNING)) == []
    assert len(reader.take_problems()) == 40
    fake.fail = {}
    assert sum(map(len, reader.read(RUNNING))) == 40


def test_a_search_that_was_given_up_is_repeated_at_the_next_poll() -> None:
    """Queues whose tags could not be read would stay unwatched until the next search, in five minutes."""

    class SilentAtFirst(Fake):
        def list_queue_tags(self, **params: Any) -> dict[str, Any]:
            if self.calls.count("silent") < 5:
                self.calls.append("silent")
                raise ReadTimeoutError(endpoint_url="https://sqs")
            return super().list_queue_tags(**params)

    fake = SilentAtFirst({f"q{n}": PLAIN for n in range(7)})
    fake.tags = {f"q{n}": {"env": "prod"} for n in range(7)}
    stop = threading.Event()
    read: set[str] = set()

    def emit(events: Any) -> None:
        read.update(event["queue"] for event in events if event["type"] == "queue_state")
        if len(read) == 7:
            stop.set()

    run(fake, emit, stop, concurrency=1, discovery={"tags": {"env": "prod"}}).join(20)
    assert len(read) == 7
    assert fake.calls.count("ListQueues") == 2


def test_counts_are_reported_while_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account of 1,500 queues at a second a call takes minutes: the collector counted as silent, and its counts were old."""
    monkeypatch.setattr(sources.sqs.parallel, "_SLICE_S", 0.05)
    fake = Hanging({f"q{n}": PLAIN for n in range(6)}, "GetQueueAttributes", "q0")
    stop = threading.Event()
    counts: Counter[str] = Counter()

    def emit(events: Any) -> None:
        counts.update(event.get("queue", "heartbeat") for event in events)
        if len(counts) == 6:
            fake.release.set()
        if counts["q0"]:
            stop.set()

    run(fake, emit, stop, concurrency=2, interval_s=600, discovery={"with_dead_letter_queues": False}).join(15)
    assert {name: n for name, n in counts.items() if name != "heartbeat"} == {f"q{n}": 1 for n in range(6)}
    assert counts["heartbeat"] >= 2


def test_heartbeats_are_sent_during_a_long_search_as_long_as_calls_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes three calls for each queue."""
    monkeypatch.setattr(sources.sqs.parallel, "_SLICE_S", 0.05)
    monkeypatch.setattr(sources.sqs.collector, "_HEARTBEAT_S", 0.0)
    fake = Hanging({f"q{n}": PLAIN for n in range(6)}, "ListQueueTags", "q3")
    stop = threading.Event()
    found: list[Any] = []
    thread = run(fake, found.extend, stop, concurrency=1)
    assert fake.hanging.wait(10)
    deadline_s = time.monotonic() + 10
    while not found and time.monotonic() < deadline_s:
        time.sleep(0.01)
    time.sleep(0.3)  # some more slices, in which no call succeeds
    assert [event["type"] for event in found] == ["heartbeat"]
    stop.set()
    thread.join(5)
    fake.release.set()


def test_slices_are_limited_and_keep_every_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in an action is raised, and nothing further is begun."""
    monkeypatch.setattr(sources.sqs.parallel, "_SLICE_ITEMS", 10)
    slices = list(in_slices(range(25), lambda n: None if n == 7 else n, threads=4, stop=RUNNING))
    assert [len(found) for found in slices] == [10, 10, 4]
    assert sorted(n for found in slices for n in found) == [n for n in range(25) if n != 7]
    assert list(in_slices([], str, threads=4, stop=RUNNING)) == []
    begun: list[int] = []

    def fail(n: int) -> None:
        begun.append(n)
        raise KeyError(n)

    with pytest.raises(KeyError):
        list(in_slices(range(1000), fail, threads=1, stop=RUNNING))
    assert begun == [0]
