"""Run the visible part of a recording through queuewatch's own code, and keep what it publishes.

It uses the same decoder, tracking and judge as a live run, on event time, in this process, starting from the recording's file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, cast

from lab.arrival_order import ArrivedEvent, in_arrival_order
from lab.report import Event
from lab.slow_trigger import with_trigger_interval
from sinks.lines import signal_line
from sources.wire import decode_records, encode_ndjson
from streaming.core.settings import Settings
from streaming.judge.metrics import Sample
from streaming.replay.recording import Recording, read_recording
from streaming.replay.run import local_engine, replay

EVERY_MS = 30_000

Series = dict[int, float]
"""Values by epoch millisecond."""

KEPT = frozenset(
    {
        "queuewatch_queue_messages",
        "queuewatch_tracked_messages",
        "queuewatch_telemetry_basis",
        "queuewatch_oldest_message_age_seconds",
        "queuewatch_oldest_message_age_exact",
        "queuewatch_queue_status",
    }
)
"""The judged metrics; keeping the others would only cost memory."""


@dataclass
class Outcome:
    """What queuewatch published: signal lines as in a replay, metrics by series, and the times of publication."""

    signals: list[dict[str, Any]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    _series: dict[tuple[str, str, str], Series] = field(default_factory=dict)

    def series(self, metric: str, queue: str, label: str = "") -> Series:
        """Return a queue's metric by its own label (`visible` of the state, `all` of the scope); empty if never published."""
        return self._series.get((f"queuewatch_{metric}", queue, label), {})

    def labelled(self, metric: str, queue: str) -> Mapping[str, Series]:
        """Return all series of a queue's metric, by their own label."""
        return {label: s for (name, of, label), s in self._series.items() if (name, of) == (f"queuewatch_{metric}", queue)}

    def chosen(self, metric: str, queue: str) -> dict[int, str]:
        """Return the state at each time for a metric with one series per state: the label whose value is 1."""
        found: dict[int, str] = {}
        for label, series in self.labelled(metric, queue).items():
            found |= {at: label for at, value in series.items() if value == 1}
        return dict(sorted(found.items()))

    def fired(self, *names: str, queue: str | None = None, severity: str | None = None) -> list[dict[str, Any]]:
        """Return the signals that began to fire."""
        return [
            s
            for s in self.signals
            if s["status"] == "firing"
            and (not names or s["signal"] in names)
            and queue in (None, s["queue"])
            and severity in (None, s["severity"])
        ]

    def firing_at(self, at: int, name: str, queue: str) -> bool:
        """Whether a signal of a queue fires at a time in epoch milliseconds."""
        firing: set[tuple[Any, ...]] = set()
        for s in self.signals:
            if s["at"] <= at and s["signal"] == name and s["queue"] == queue:
                about = (s.get("message_id"), s.get("group"), s.get("consumer"), s.get("part"))
                (firing.add if s["status"] == "firing" else firing.discard)(about)
        return bool(firing)

    def _keep(self, at: int, sample: Sample) -> None:
        if not self.times or self.times[-1] != at:
            self.times.append(at)
        if sample.name in KEPT:
            own = [value for name, value in sample.labels.items() if name not in ("system", "scope_id", "queue")]
            key = (sample.name, sample.labels.get("queue", ""), ",".join(own))
            self._series.setdefault(key, {})[at] = sample.value


def run(
    events: Sequence[Event] | Sequence[ArrivedEvent],
    settings: Settings | None = None,
    *,
    every_ms: int = EVERY_MS,
    trigger_ms: int | None = None,
    until: int | None = None,
) -> Outcome:
    """Replay wire-format events given in order of arrival; items with an arrival time take effect then.

    Metrics are kept every `every_ms`. `trigger_ms` is the shortest interval between judgements; None: as in a replay.
    """
    outcome = Outcome()
    chosen = settings or Settings()
    recording = _as_file(events, chosen) if not _timed(events) else in_arrival_order(events, chosen)
    replay(
        recording,
        chosen,
        every_ms=every_ms,
        until=until,
        engine=local_engine if trigger_ms is None else with_trigger_interval(trigger_ms),
        on_signal=lambda change: outcome.signals.append(signal_line(change)),
        on_metric=outcome._keep,
    )
    return outcome


def _timed(events: Sequence[Event] | Sequence[ArrivedEvent]) -> TypeGuard[Sequence[ArrivedEvent]]:
    return bool(events) and isinstance(events[0], ArrivedEvent)


def _as_file(events: Sequence[Event] | Sequence[ArrivedEvent], settings: Settings) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.ndjson"
        path.write_bytes(encode_ndjson(cast(Sequence[Event], events)))
        recording = read_recording([path], decode_records, settings)
    if recording.unreadable:
        raise ValueError(f"the simulator wrote an event that cannot be read: {recording.unreadable[0]}")
    return recording


def first_at(signals: Iterable[Mapping[str, Any]], since_ms: int = 0) -> int | None:
    """Return when the first of these signals fired at or after `since_ms`; None when none did."""
    return min((s["at"] for s in signals if s["at"] >= since_ms), default=None)
