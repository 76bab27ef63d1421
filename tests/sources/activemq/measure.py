"""Measure the rates and the load that the documentation states: `python -m tests.sources.activemq.measure`.

It takes a minute. The broker, a JMS application and the collector (in its own process) share this machine.
"""

import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from sources.activemq.collector import ActiveMQCollector
from sources.activemq.config import ActiveMQCollectorConfig
from sources.events import Event, encode_ndjson
from tests.services.activemq import ActiveMQ, Policy
from tests.sources.activemq import broker
from tests.sources.activemq.lab import Jms, jms_client

TICKS_PER_S = 100
"""The unit of CPU time in `/proc/PID/stat`."""
GRACE_S = 2.0
Word = tuple[float, int, float, tuple[float, float] | None]


@dataclass(frozen=True)
class Row:
    """One measurement; an advisory reports an arrival, a dispatch or an acknowledgement."""

    what: str
    messages: int
    application_s: float
    """The application's run time."""
    broker_cpu_s: float
    advisories_per_s: float | None = None
    """Measured from the application's start until the collector had reported everything, without the last grace period."""
    behind_s: float | None = None
    """How long after the application the collector finished."""
    delay_ms: tuple[float, float] | None = None
    """Median and 99th percentile of the time from a dispatch, by the broker's clock, until the collector emitted it."""
    collector_cpu_s: float | None = None


def cpu_s(pid: int) -> float:
    """Return the CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def children() -> set[int]:
    """Return the ids of this process's children."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@contextmanager
def started(setup: broker.Setup) -> Iterator[tuple[ActiveMQ, int]]:
    """Start a broker; yield it and its process id."""
    before = children()
    with broker.start(setup) as running:
        [pid] = children() - before
        yield running, pid


def collect(address: str, results: Connection) -> None:
    """Run a collector; after each batch of events, send the time, the number of message events, the CPU time and delays."""
    seen = 0
    delays_ms: list[float] = []

    def emit(events: Sequence[Event]) -> None:
        nonlocal seen
        encode_ndjson(events)
        now_s = time.time()
        seen += sum("message_id" in event for event in events)
        delays_ms.extend(now_s * 1000 - event["at"] for event in events if event["type"] == "received")
        del delays_ms[:-5_000]
        ranked = sorted(delays_ms[-5_000:])
        delay_ms = (ranked[len(ranked) // 2], ranked[len(ranked) * 99 // 100]) if ranked else None
        results.send((now_s, seen, time.process_time(), delay_ms))

    config = ActiveMQCollectorConfig(addresses=(address,), probe_queue=None)
    ActiveMQCollector(config).run(emit, threading.Event())


def through(jms: Jms, pid: int, what: str, messages: int, rate: int, reports: "Reports | None") -> Row:
    """Send messages through the queue and wait until the collector, if any, has reported them all."""
    broker_before, started_s = cpu_s(pid), time.time()
    before = reports.wait_for(0) if reports else (0.0, 0, 0.0, None)
    jms("load", f"measured {messages} {rate}")
    ended_s = time.time()
    row = Row(what, messages, ended_s - started_s, 0.0)
    if reports is not None:
        done = reports.wait_for(before[1] + 3 * messages)
        row = Row(
            what,
            messages,
            row.application_s,
            0.0,
            advisories_per_s=3 * messages / (done[0] - GRACE_S - started_s),
            behind_s=max(0.0, done[0] - GRACE_S - ended_s),
            delay_ms=done[3],
            collector_cpu_s=done[2] - before[2],
        )
    return Row(**{**asdict(row), "broker_cpu_s": cpu_s(pid) - broker_before})


class Reports:
    """Keeps the collector's latest report: time, message events so far, CPU seconds so far, delays."""

    def __init__(self, results: Connection) -> None:
        self.latest: Word | None = None
        threading.Thread(target=self._read, args=(results,), daemon=True).start()

    def _read(self, results: Connection) -> None:
        with suppress(EOFError):
            while True:
                self.latest = results.recv()

    def wait_for(self, events: int) -> Word:
        """Return the report as soon as the collector has emitted `events` message events."""
        while self.latest is None or self.latest[1] < events:
            time.sleep(0.01)
        return self.latest


def measure_unwatched(what: str, setup: broker.Setup, rows: list[Row]) -> None:
    """Measure the application without a collector."""
    with started(setup) as (running, pid), jms_client(running, 0) as jms:
        through(jms, pid, "warm-up", 20_000, 0, None)
        rows.append(through(jms, pid, f"{what}, 1,000 messages/s", 10_000, 1_000, None))


def measure_watched(rows: list[Row]) -> None:
    """Measure the application while a collector watches."""
    with started(broker.Setup()) as (running, pid), jms_client(running, 0) as jms:
        through(jms, pid, "warm-up", 20_000, 0, None)
        results, theirs = multiprocessing.Pipe()
        address = f"stomp://{running.host}:{running.stomp_port}"
        process = multiprocessing.get_context("spawn").Process(target=collect, args=(address, theirs))
        process.start()
        reports = Reports(results)
        reports.wait_for(0)
        time.sleep(4)
        through(jms, pid, "warm-up", 10_000, 0, reports)
        rows.append(through(jms, pid, "collector, as fast as it goes", 20_000, 0, reports))
        for rate in (500, 1_000, 2_000, 2_500):
            what = f"collector, {rate:,} messages/s"
            rows.append(through(jms, pid, what, 10 * rate, rate, reports))
        process.kill()
        process.join()


def main() -> None:
    """Measure, and print the rows as a table and as JSON."""
    rows: list[Row] = []
    measure_unwatched("advisories off", broker.Setup(policies=(Policy(advisories=False),)), rows)
    measure_unwatched("advisories on, nobody listens", broker.Setup(), rows)
    measure_watched(rows)
    for row in rows:
        per_message = row.broker_cpu_s / row.messages * 1e6
        line = f"{row.what:36} {row.messages / row.application_s:8,.0f} messages/s  broker {per_message:5.0f} us/message"
        if row.advisories_per_s is not None and row.collector_cpu_s is not None:
            each = row.collector_cpu_s / row.messages / 3 * 1e6
            line += f"  {row.advisories_per_s:7,.0f} advisories/s, {row.behind_s:.1f} s behind, {each:.0f} us each"
            line += f", delay {row.delay_ms}"
        sys.stdout.write(line + "\n")
    sys.stdout.write(json.dumps([asdict(row) for row in rows]) + "\n")


if __name__ == "__main__":
    main()
