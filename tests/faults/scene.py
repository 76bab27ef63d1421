"""The setting of a fault: a service under load, in a place of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.service import Service, running
from tests.faults.load import Load, Put, into_folder

ACCEPTED: Final = 'queuewatch_events_total{result="accepted"}'
WITHIN_S: Final = 600


@dataclass
class Place:
    """Where the service runs. By default it runs on this machine and reads a spool folder; subclasses differ."""

    folder: Path
    source: dict[str, Any] = field(default_factory=lambda: {"spool": {"folder": "spool"}})
    spark: dict[str, Any] = field(default_factory=lambda: {"checkpoint_dir": "data/checkpoint", "master": "local[2]"})
    more: dict[str, Any] = field(default_factory=dict)
    """Other sections of the configuration."""

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration of the service."""
        spark = {"driver_memory": "1g", **self.spark}
        return {
            "source": self.source,
            "spark": spark,
            "signal_log": {"path": "signals.ndjson"},
            "log": {"format": "json"},
            **self.more,
        }

    def announcements(self) -> list[str]:
        """Return the announcements of every signal change, as often as they were made."""
        lines = (self.folder / "signals.ndjson").read_text().splitlines()
        return [json.loads(line)["announcement"] for line in lines]

    @property
    def put(self) -> Put:
        """Return the function that sends events to the service."""
        return into_folder(self.folder / "spool")


Prepared = Callable[[Path], AbstractContextManager[Place]]
"""Prepares a place in a folder, while a block runs."""


@contextmanager
def one_machine(folder: Path) -> Iterator[Place]:
    """Run Spark inside the service's process."""
    yield Place(folder)


@dataclass
class Scene:
    """One service under load."""

    place: Place
    service: Service
    load: Load
    stack: ExitStack
    in_flight: list[int] = field(default_factory=list)
    """For each fault, the events that had been sent but were in no published batch."""
    began_s: float = 0.0

    @property
    def checkpoint(self) -> Path:
        """Return the folder of the job's checkpoint."""
        return self.place.folder / "data" / "checkpoint"

    def strike(self) -> None:
        """Record the events in flight and the time of the fault."""
        metrics = self.service.wait(lambda metrics: ACCEPTED in metrics)
        self.in_flight.append(self.load.events - int(metrics[ACCEPTED]))
        self.began_s = time.monotonic()

    def start_again(self) -> None:
        """Restart the service, as an init system does."""
        self.service = self.stack.enter_context(running(self.place.folder, self.place.config))

    def wait_for_end(self) -> None:
        """Wait until the service ends by itself, with the exit code of a failure."""
        code = self.service.process.wait(WITHIN_S)
        if code != 1:
            raise AssertionError(f"the service ended with {code}: {self.service.words()}")

    def wait_for_more(self, than: int) -> float:
        """Wait until events sent later than `than` are counted; return the seconds since the fault."""
        self.service.wait(lambda metrics: metrics.get(ACCEPTED, 0) > than, WITHIN_S)
        return time.monotonic() - self.began_s


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    happens: Callable[[Scene], None]
    """Its docstring is its name in the table."""
    prepared: Prepared = one_machine
    times: int = 1
    """How many times it happens in one run."""
    where: str = ""
    """The suffix for its name in the table, which describes the place."""
    reads_again: bool = False
    """Whether records may be read twice by design, and their events counted as duplicates."""

    @property
    def title(self) -> str:
        """Return its name in the table."""
        return f"{self.happens.__doc__}{self.where}"
