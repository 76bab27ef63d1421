"""Which clients are instrumented and what the collector sees: from all possible reports to the actual ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any

from lab.arrival_order import ArrivedEvent
from lab.history import Counts
from lab.recording import Recording
from lab.report import Event, Report, System, event
from lab.simulation import T0_MS, ms

POLL_EVERY_S = 30
COLLECTORS: Mapping[System, str] = {
    "aws_sqs": "sqs/eu-west-1",
    "activemq": "activemq/broker-1",
    "cloudflare_queues": "cloudflare/0123456789abcdef",
}
EVER = (0.0, float("inf"))
NEVER = (0.0, 0.0)

Span = tuple[float, float]
"""Start and end, in seconds since the start of the simulation."""


@dataclass(frozen=True)
class Instrumentation:
    """The part of a recording that reaches queuewatch."""

    name: str
    producers: Span = EVER
    consumers: Span = EVER
    collector: Span = EVER
    share: float = 1.0
    """The share of all messages that is reported, chosen by message id on both sides."""
    only_consumers: frozenset[str] | None = None
    """None: all."""
    noise: float = 0.0
    """Each count is wrong by up to this share, at random."""
    lag_s: float = 0.0
    """Counts are this many seconds old."""
    late_ratio: float = 0.0
    """This share of message events arrives up to `late_s` late."""
    late_s: float = 0.0
    repeated_ratio: float = 0.0
    """This share of message events arrives twice."""
    skew_s: Mapping[str, float] = field(default_factory=dict)
    """How far a client's clock is ahead."""

    @property
    def base(self) -> str:
        """The instrumentation's name without the quality of its counts."""
        return self.name.split("/")[0]

    @property
    def full(self) -> bool:
        """Whether every message is reported from its send to its end, always."""
        everything = self.share >= 1 and self.only_consumers is None
        return everything and self.producers == self.consumers == EVER

    def with_counts(self, counts: str) -> Instrumentation:
        """Return the instrumentation with another quality of the broker's counts, a name of COUNTS."""
        return replace(self, name=f"{self.name}/{counts}", **COUNTS[counts])


COUNTS: Mapping[str, Mapping[str, Any]] = {"exact": {}, "noisy": {"noise": 0.05}, "late": {"lag_s": 60.0}}

INSTRUMENTATIONS: Mapping[str, Instrumentation] = {
    instrumentation.name: instrumentation
    for instrumentation in (
        Instrumentation("attributes", producers=NEVER, consumers=NEVER),
        Instrumentation("producers", consumers=NEVER),
        Instrumentation("consumers", producers=NEVER),
        Instrumentation("sample25", share=0.25),
        Instrumentation("sample50", share=0.5),
        Instrumentation("full"),
        Instrumentation("one_of_two", only_consumers=frozenset({"worker-1"})),
    )
}

CHANGEOVERS: Mapping[str, Instrumentation] = {
    instrumentation.name: instrumentation
    for instrumentation in (
        Instrumentation("producer_joins", producers=(1800.0, EVER[1])),
        Instrumentation("consumers_join", consumers=(1800.0, EVER[1])),
        Instrumentation("all_join", producers=(1800.0, EVER[1]), consumers=(1800.0, EVER[1])),
        Instrumentation("producer_leaves", producers=(0.0, 1800.0)),
        Instrumentation("collector_dies", collector=(0.0, 2400.0)),
    )
}


def seen(recording: Recording, instrumentation: Instrumentation) -> list[Event]:
    """Return the events that reach queuewatch, in order of arrival."""
    return [arrival.event for arrival in arrived_events(recording, instrumentation)]


def arrived_events(recording: Recording, instrumentation: Instrumentation) -> list[ArrivedEvent]:
    """Return the events that reach queuewatch, in order, with their times of arrival."""
    return sorted(
        (ArrivedEvent(came, reported) for came, reported in _arrived_events(recording, instrumentation)), key=lambda a: a.came_ms
    )


def _arrived_events(recording: Recording, instrumentation: Instrumentation) -> Iterator[tuple[int, Event]]:
    yield from _polls(recording, instrumentation)
    random = Random(f"{recording.seed}/{recording.name}/{instrumentation.name}/transport")
    for report in recording.reports:
        if not _reported(report, instrumentation):
            continue
        reported = report.event
        arrives = reported["at"]
        skew_ms = round(instrumentation.skew_s.get(report.client, 0.0) * 1000)
        if skew_ms:
            reported = {**reported, "at": reported["at"] + skew_ms}
        if instrumentation.late_ratio and random.random() < instrumentation.late_ratio:
            arrives += round(random.uniform(0, instrumentation.late_s) * 1000)
        yield arrives, reported
        if instrumentation.repeated_ratio and random.random() < instrumentation.repeated_ratio:
            yield arrives + 1000, reported


def _reported(report: Report, instrumentation: Instrumentation) -> bool:
    at = report.event["at"]
    span = instrumentation.producers if report.role == "producer" else instrumentation.consumers
    if not ms_in(at, span):
        return False
    if (
        report.role == "consumer"
        and instrumentation.only_consumers is not None
        and report.client not in instrumentation.only_consumers
    ):
        return False
    return instrumentation.share >= 1 or report.message_id is None or _draw(report.message_id) < instrumentation.share


def ms_in(at: int, span: Span) -> bool:
    """Whether an epoch millisecond lies in a span of seconds."""
    return span[0] <= (at - T0_MS) / 1000 < span[1]


def _draw(message_id: str) -> float:
    """Return a number in [0, 1) that is the same for a message on both sides."""
    return int.from_bytes(blake2b(message_id.encode(), digest_size=6).digest()) / 2**48


def _polls(recording: Recording, instrumentation: Instrumentation) -> Iterator[tuple[int, Event]]:
    random = Random(f"{recording.seed}/{recording.name}/{instrumentation.name}/counts")
    system = recording.system
    at_s = 0
    while (at := ms(at_s)) <= recording.ends_at:
        if ms_in(at, instrumentation.collector):
            for queue in recording.settings:
                counted_at = max(T0_MS, at - round(instrumentation.lag_s * 1000))
                history = recording.history.of(queue)
                counts = Counts(*(_noisy(count, instrumentation.noise, random) for count in history.counts(counted_at)))
                reported = read_counts(system, counts, history.oldest_sent_at(counted_at))
                yield at, event("queue_state", at, queue, system, attributes={**recording.settings_at(queue, at), **reported})
            yield at, {"v": 1, "type": "heartbeat", "at": at, "system": system, "consumer": COLLECTORS[system]}
        at_s += POLL_EVERY_S


def read_counts(system: System, counts: Counts, oldest_sent_at: int | None) -> dict[str, int | None]:
    """Return the counts a broker of this kind reports."""
    if system == "cloudflare_queues":
        # The backlog is the unacknowledged messages; how many are in flight is known only when there are none.
        in_flight = None if counts.unsettled else 0
        return {"visible": counts.unsettled, "in_flight": in_flight, "oldest_sent_at": oldest_sent_at}
    if system == "activemq":
        return {"visible": counts.visible + counts.delayed, "in_flight": counts.in_flight}
    return counts._asdict()


def _noisy(count: int, noise: float, random: Random) -> int:
    return max(0, round(count * (1 + random.uniform(-noise, noise)))) if noise else count


def polled(events: list[Event], queue: str) -> dict[int, Counts]:
    """Return the broker's counts of a queue at each poll among `events`."""
    found = {}
    for reported in events:
        if reported["type"] == "queue_state" and reported["queue"] == queue:
            a = reported["attributes"]
            found[reported["at"]] = Counts(a["visible"], a["in_flight"] or 0, a.get("delayed", 0))
    return found
