"""One fault is tried and becomes one row of the table."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.e2e.service import Service, running
from tests.faults.load import Load
from tests.faults.scene import ACCEPTED, WITHIN_S, Fault, Place, Scene

HEAD: Final = "| fault | events sent | in flight | lost | doubled | seconds to recover |\n|---|---|---|---|---|---|\n"
_SENT: Final = "queuewatch_messages_sent_total{"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a fault."""

    title: str
    sent: int
    in_flight: Sequence[int]
    lost: int
    doubled: int
    """The number of events counted, or signals announced, twice."""
    seconds: Sequence[float]

    @property
    def row(self) -> str:
        """Return the row of the table."""
        figures = f"{self.sent:,} | {_range(self.in_flight)} | {self.lost} | {self.doubled} | {_range(self.seconds)}"
        often = f", {len(self.seconds)} times" if len(self.seconds) > 1 else ""
        return f"| {self.title}{often} | {figures} |"


def tried(fault: Fault, events_per_s: int, times: int, steady_s: float = 10) -> Outcome:
    """Trigger a fault in a service that has run steadily for `steady_s`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="queuewatch-faults-", ignore_cleanup_errors=True)))
        place = stack.enter_context(fault.prepared(folder))
        load = Load(place.put, events_per_s)
        stack.callback(load.stop)
        service = stack.enter_context(running(folder, place.config))
        scene = Scene(place, service, load, stack)
        service.wait(lambda metrics: metrics.get(ACCEPTED, 0) > 0, WITHIN_S)
        seconds = []
        for _ in range(times):
            time.sleep(steady_s)
            fault.happens(scene)
            seconds.append(scene.wait_for_more(scene.load.events))
        sent = load.stop()
        _wait_for_all(scene.service, sent)
        time.sleep(3)
        metrics = scene.service.metrics()
        logged, announced = set(Place.announcements(place)), Counter(place.announcements())
        scene.service.stop()
        accepted = int(metrics[ACCEPTED])
        counted = accepted + (0 if fault.reads_again else int(metrics.get('queuewatch_events_total{result="duplicate"}', 0)))
        messages = int(sum(value for name, value in metrics.items() if name.startswith(_SENT))) - load.messages
        return Outcome(
            fault.title,
            sent,
            scene.in_flight,
            max(sent - accepted, -messages) + len(logged - announced.keys()),
            max(0, counted - sent, messages) + sum(n - 1 for n in announced.values()),
            seconds,
        )


def _wait_for_all(service: Service, sent: int) -> None:
    """Wait until all events are counted, or until the count no longer grows: then something is lost."""
    counted, since_s = 0.0, time.monotonic()
    while counted < sent and time.monotonic() - since_s < WITHIN_S / 2:
        now = service.wait(lambda metrics: ACCEPTED in metrics)[ACCEPTED]
        if now > counted:
            counted, since_s = now, time.monotonic()
        time.sleep(0.2)


def _range(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:,.0f}"
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
