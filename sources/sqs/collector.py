"""`queuewatch collect sqs`: reports the state of queues, from their attributes alone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from queuewatch.clock import now_ms
from queuewatch.places import Place, region_of_url
from sources.collect.base import CollectorRefused
from sources.collect.supervise import supervise
from sources.events import Emit, Event, heartbeat
from sources.sqs.account import AccountReader
from sources.sqs.attributes import SYSTEM
from sources.sqs.clients import make_clients
from sources.sqs.config import SqsCollectorConfig
from sources.sqs.discovery import refuse_foreign
from sources.sqs.problems import LoggedProblems, Problem
from sources.sqs.telemetry import SqsTelemetryCollector

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_log = logging.getLogger(__name__)

_MOST_STRETCH: Final = 8.0
_HEARTBEAT_S: Final = 30.0
"""How often the collector says, between polls and during a search, that it is alive. After two minutes it counts as dead."""


class SqsCollector:
    """Watches the queues of one account, in one or more regions, until it is stopped.

    It never receives from a queue it watches: a receive counts against a message and hides it from its consumers.
    A heartbeat is sent for each region with what was read, every few seconds while it is read, and until the next read.
    """

    kind: ClassVar[str] = "sqs"

    def __init__(self, config: SqsCollectorConfig, clients: Sequence[SQSClient] | None = None) -> None:
        """Raises `CollectorRefused` when there is no client for a queue that `config` names by URL."""
        self._config = config
        self._clients = list(clients) if clients is not None else make_clients(config)
        refuse_foreign(config.discovery, [client.meta.region_name for client in self._clients])
        # A long poll for telemetry needs a client of its own, which waits longer for an answer.
        self._telemetry_client = _telemetry_client(config, clients) if clients is not None else None

    @classmethod
    def from_config(cls, config: SqsCollectorConfig) -> Self:
        """Create the collector that `config` describes. Raises `CollectorRefused`."""
        return cls(config)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Watch until `stop` is set. Raises `CollectorRefused` when the telemetry queue is among the watched queues."""
        names = [client.meta.region_name for client in self._clients]
        regions = [_Region(self._config, client, names) for client in self._clients]
        parts: list[Callable[[threading.Event], None]] = [partial(region.run, emit) for region in regions]
        if self._config.telemetry is not None:
            drain = SqsTelemetryCollector(self._config, self._telemetry_client)
            own = [region for region, name in zip(regions, names, strict=True) if name == drain.region]

            def drain_once_checked(stop: threading.Event) -> None:
                # Wait until it is known that the queue is not among the watched ones of its region.
                while not all(region.checked for region in own):
                    if stop.wait(0.1):
                        return
                drain.run(emit, stop)

            parts.append(drain_once_checked)
        supervise(self.kind, parts, stop)


def _telemetry_client(config: SqsCollectorConfig, clients: Sequence[SQSClient]) -> SQSClient:
    region = None if config.telemetry is None else region_of_url(config.telemetry.queue)
    return next((client for client in clients if client.meta.region_name == region), clients[0])


class _Region:
    """The loop that reads one region and reports."""

    def __init__(self, config: SqsCollectorConfig, client: SQSClient, regions: Sequence[str]) -> None:
        self._config = config
        self._name = f"{config.name}/{client.meta.region_name}"
        self._reader = AccountReader(
            client,
            config.discovery,
            regions=regions,
            concurrency=config.concurrency,
            move_task_interval_s=config.move_task_interval_s,
        )
        self.checked = False
        """Whether the queues are known and do not include the telemetry queue."""
        self._watched = -1
        """How many queues the last search found; negative before the first."""
        self._is_alive = True
        """Whether the last poll could read what is watched; a search before the first one may take minutes."""
        self._heard_s = time.monotonic()
        """When the last heartbeat was sent (monotonic)."""
        self._stretch = 1.0
        self._logged = LoggedProblems()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        discovered_s = float("-inf")
        while not stop.is_set():
            began_s = time.monotonic()
            error, problems = None, []
            if began_s - discovered_s >= self._config.discovery_interval_s:
                error = self._discover(stop, partial(self._beat, emit, _HEARTBEAT_S))
                problems = self._reader.take_problems()
                if error is None and not any(problem.unanswered for problem in problems):
                    discovered_s = began_s
            has_read = False
            for events in self._reader.read(stop):
                self._report(emit, events)
                has_read = True
            problems += self._reader.take_problems()
            self._log_problems(problems)
            if stop.is_set():
                return
            if self._config.discovery.tags and any(p.throttled and p.call == "ListQueueTags" for p in problems):
                discovered_s = float("-inf")  # Whether a queue is wanted is not known without its tags.
            self._pace(any(problem.throttled for problem in problems) or (error is not None and _asks_for_fewer_calls(error)))
            self._is_alive = has_read or (error is None and not problems and not self._reader.misses_queues)
            if not has_read:
                self._beat(emit)
            until_s = began_s + self._config.interval_s * self._stretch
            while (left_s := until_s - time.monotonic()) > 0 and not stop.wait(min(left_s, _HEARTBEAT_S)):
                if left_s > _HEARTBEAT_S:
                    self._beat(emit)

    def _report(self, emit: Emit, events: Sequence[Event]) -> None:
        emit([*events, heartbeat(SYSTEM, self._name, now_ms())])
        self._heard_s = time.monotonic()

    def _beat(self, emit: Emit, after_s: float = 0.0) -> None:
        """Send a heartbeat if the last poll could read anything, and there was none for `after_s`."""
        if self._is_alive and time.monotonic() - self._heard_s >= after_s:
            self._report(emit, ())

    def _discover(self, stop: threading.Event, beat: Callable[[], None]) -> ClientError | BotoCoreError | None:
        """Find queues; return the error if they cannot be listed."""
        try:
            self._reader.discover(stop, beat)
        except (ClientError, BotoCoreError) as error:
            self._log_problems([Problem.of(self._name, "ListQueues", error)])
            if not _asks_for_fewer_calls(error):
                # Those named by URL are all that can be watched.
                self._check(self._reader.places)
            return error
        if stop.is_set():  # before all were found
            return None
        places = self._reader.places
        self._check(places)
        if self._reader.unread_tags:
            _log.warning(
                "SQS: %s: queues watched: %d; not watched because their tags (collect.sqs.discovery.tags) could not be read: %d",
                self._name,
                len(places),
                self._reader.unread_tags,
            )
        elif not places and self._watched:
            _log.warning("SQS: %s: no queue matches collect.sqs.discovery: nothing is watched in this region", self._name)
        elif len(places) != self._watched:
            _log.info("SQS: %s: queues watched: %d", self._name, len(places))
        self._watched = len(places)
        return None

    def _check(self, watched: Sequence[Place]) -> None:
        """Refuse to watch the telemetry queue; afterwards it may be drained."""
        own = self._config.telemetry
        if own is not None and any(place.queue == own.name for place in watched):
            raise CollectorRefused(
                f"the telemetry queue {own.name!r} is among the watched queues: receiving from a watched queue would "
                f"take messages from its consumers. Add {own.name!r} to collect.sqs.discovery.exclude, "
                "or name another queue in collect.sqs.telemetry.queue"
            )
        self.checked = True

    def _pace(self, pressed: bool) -> None:
        """Read less often while SQS throttles or does not answer, and recover slowly."""
        self._stretch = min(self._stretch * 2, _MOST_STRETCH) if pressed else max(1.0, self._stretch / 2)

    def _log_problems(self, problems: Sequence[Problem]) -> None:
        for line in self._logged.due(problems, time.monotonic()):
            _log.warning("SQS: %s", line)


def _asks_for_fewer_calls(error: ClientError | BotoCoreError) -> bool:
    """Whether fewer calls help: SQS throttles or cannot be reached. A missing permission stays until somebody adds it."""
    return isinstance(error, BotoCoreError) or Problem.of("", "ListQueues", error).throttled
