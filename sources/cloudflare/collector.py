"""The collector: requests the state of an account's queues from Cloudflare's API and reports it as telemetry events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import ClassVar, Final, NamedTuple, Self

from queuewatch.clock import now_ms
from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.budget import Budget
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.cloudflare.declared import read_declared
from sources.cloudflare.discovery import Discovery
from sources.cloudflare.drain import TelemetryDrain
from sources.cloudflare.errors import ApiError, NotFound, RateLimited, Unauthorized
from sources.cloudflare.event_builder import EventBuilder, settings_attributes
from sources.cloudflare.settings import Consumer
from sources.cloudflare.watched import Job, Watched, WatchList, backoff_s
from sources.cloudflare.wrangler import WranglerError
from sources.collect.base import CollectorRefused
from sources.collect.supervise import supervise
from sources.events import Emit, Event

log = logging.getLogger(__name__)

IDLE_S: Final = 0.5
"""The longest sleep of the loop, and so the largest delay of a heartbeat."""
_SILENT_AFTER_S: Final = 60.0
_UNAUTHORIZED_PAUSE_S: Final = 30.0
_BACKOFF: Final = "backoff_cap_exceeded_at_attempt"


class Subject(NamedTuple):
    """What a logged problem is about."""

    what: str
    queue: str | None = None
    """The name of the queue that it concerns; None for the whole account."""

    def __str__(self) -> str:
        return self.what if self.queue is None else f"{self.what} of {self.queue}"


_LIST: Final = Subject("list")
_RATE: Final = Subject("rate")


class CloudflareCollector:
    """Watches the queues of one account until it is stopped: one request at a time, each queue independently.

    Heartbeats are sent only while the API answers: an account that cannot be read shows as a silent collector.
    """

    kind: ClassVar[str] = "cloudflare"

    def __init__(self, config: CloudflareCollectorConfig, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Raises `CollectorRefused` for a Wrangler file that cannot be used. `clock_s` is monotonic."""
        self._config = config
        self._clock_s = clock_s
        self._builder = EventBuilder(config.account_id, config.collector_name)
        self._budget = Budget(config.requests_per_5min, clock_s)
        try:
            self._declared = read_declared(config.wrangler_files, config.wrangler_env)
        except WranglerError as error:
            raise CollectorRefused(str(error)) from error
        self._queues = WatchList()
        self._ids: dict[str, str] = {}
        self._discovery = Discovery()
        self._discovery_due_s = 0.0
        self._failed_lists = 0
        self._heartbeat_due_s = 0.0
        self._answered_at_s = float("-inf")
        self._logged: dict[Subject, str] = {}

    @classmethod
    def from_config(cls, config: CloudflareCollectorConfig) -> Self:
        """Create the collector that `config` describes. Raises `CollectorRefused`."""
        return cls(config)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Watch until `stop` is set. Never raises because of the API or the network."""
        # httpx logs a line per request, which would bury everything else.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        with ExitStack() as stack:
            api = stack.enter_context(self.open_api())
            emit = _one_at_a_time(emit)
            parts: list[Callable[[threading.Event], None]] = [partial(self._watch, api, emit)]
            if self._config.drain is not None:
                api_of_drain = stack.enter_context(self._open(None))
                drain = TelemetryDrain(self._config.drain, api_of_drain, self._drained_queue_id, self._config.collector_name)
                parts.append(partial(drain.run, emit))
            supervise(self.kind, parts, stop)

    def _watch(self, api: CloudflareApi, emit: Emit, stop: threading.Event) -> None:
        while not stop.is_set():
            stop.wait(min(self.step(api, emit), IDLE_S))

    def open_api(self) -> CloudflareApi:
        """Open the account's API, within the collector's request budget."""
        return self._open(self._budget)

    def step(self, api: CloudflareApi, emit: Emit) -> float:
        """Make at most one request; returns the seconds until there is another to make."""
        now_s = self._clock_s()
        if now_s >= self._heartbeat_due_s and now_s - self._answered_at_s <= self._patience_s():
            self._heartbeat_due_s = now_s + self._config.heartbeat_interval_s
            emit([self._builder.heartbeat(now_ms())])
        job = self._queues.next_job()
        due_s = min(self._discovery_due_s, job.due_s if job else float("inf"))
        if due_s > now_s or not self._budget.take():
            return max(due_s - now_s, self._budget.wait_s())
        if job is None or self._discovery_due_s <= job.due_s:
            self._list(api)
        else:
            self._ask(api, job, emit)
        return 0.0

    def _list(self, api: CloudflareApi) -> None:
        """Read one page of the list of queues."""
        now_s = self._clock_s()
        try:
            page = api.page(self._discovery.next_page)
        except ApiError as error:
            wait_s = backoff_s(self._config.poll_interval_s, self._failed_lists)
            self._failed_lists += 1
            self._discovery_due_s = now_s + wait_s
            # Restart at the first page: a list read in two parts may miss entries that moved in between.
            self._discovery = Discovery()
            self._back_off(error)
            remedy = f". {self._config.token_remedy}" if isinstance(error, Unauthorized) else ""
            self._log_once(_LIST, f"{error}; what is known already is still watched{remedy}")
            return
        self._note_answer(_LIST)
        self._failed_lists = 0
        self._discovery.take(page)
        if not self._discovery.done:
            return
        listed, self._discovery = self._discovery.queues, Discovery()
        self._discovery_due_s = now_s + self._config.discovery_interval_s
        self._ids = {queue.name: queue.id for queue in listed}
        # Problems of queues that are gone are forgotten: a new queue for each job would let them grow without end.
        lasting = {None, *self._ids}
        self._logged = {subject: kind for subject, kind in self._logged.items() if subject.queue in lasting}
        wanted = [queue for queue in listed if self._config.is_watched(queue.name)]
        for queue in self._queues.replace(wanted, now_s, self._config.poll_interval_s):
            self._learn(queue, queue.listed.consumers)
            if queue.listed.consumers is None:
                queue.due_s["consumers"] = now_s
        self._log_missing()

    def _log_missing(self) -> None:
        """Log what the configuration names and the account does not have: nothing else would show it."""
        drain = self._config.drain
        missing = {
            Subject("watched"): None if len(self._queues) else f"no queue of the account fits queues {list(self._config.queues)}",
            Subject("drained"): None
            if drain is None or drain.queue in self._ids
            else f"drain.queue {drain.queue!r} is not in the account",
        }
        for subject, problem in missing.items():
            if problem is None:
                self._logged.pop(subject, None)
            else:
                self._log_once(subject, f"{problem}: nothing is {subject}")

    def _ask(self, api: CloudflareApi, job: Job, emit: Emit) -> None:
        """Request one piece of information about one queue and emit the answer."""
        _, question, queue = job
        now_s = self._clock_s()
        subject = Subject(question, queue.listed.name)
        try:
            events = self._answer(api, job, now_s)
        except RateLimited as error:
            self._back_off(error)
            self._log_once(_RATE, str(error))
            return
        except ApiError as error:
            # A sample's call may be missing under both of its names: only the other answers say that the queue is gone.
            if isinstance(error, NotFound) and question != "sample":
                self._log_once(subject, f"queue {queue.listed.name}: {error}; not watched until it is listed again")
                self._queues.forget(queue)
                return
            wait_s = queue.failed(question, now_s, self._config.poll_interval_s)
            # A token may have access to some queues only, or to none of their messages: that alone must not delay the rest.
            if question != "sample" and self._queues.is_blind:
                self._back_off(error)
            self._log_once(subject, f"queue {queue.listed.name}: {error}; asked again in {wait_s:.0f} s")
            return
        self._note_answer(subject, _RATE)
        if events:
            emit(events)

    def _answer(self, api: CloudflareApi, job: Job, now_s: float) -> list[Event]:
        """Request it, schedule the next request, and return the events to report. Raises `ApiError`."""
        _, question, queue = job
        name, id_ = queue.listed.name, queue.listed.id
        if question == "consumers":
            self._learn(queue, api.consumers(id_))
            queue.answered(question, None)
            return []
        if question == "backlog":
            backlog = api.backlog(id_)
            queue.answered(question, now_s + self._config.poll_interval_s)
            if self._config.sample.size:
                # Sample only queues with a backlog, and those with an earlier sample, which must be withdrawn.
                if backlog.count or queue.sampled:
                    queue.due_s.setdefault("sample", now_s)
                else:
                    queue.due_s.pop("sample", None)
            return [self._builder.state(name, queue.attributes, backlog, now_ms())]
        sampled = api.sample(id_, self._config.sample.size)
        queue.answered(question, now_s + self._config.sample.interval_s if sampled else None)
        queue.sampled = bool(sampled)
        events = [self._builder.sample(name, sampled, now_ms())]
        if self._is_followed(queue):
            events += self._builder.existence(name, sampled, now_ms())
        return events

    def _is_followed(self, queue: Watched) -> bool:
        """Whether the end of a message will be known: a consumer reports it, or there is no consumer."""
        if self._config.drain is not None and queue.listed.name == self._config.drain.queue:
            return False
        return self._config.is_instrumented(queue.listed.name) or queue.attributes.get("has_consumer") is False

    def _learn(self, queue: Watched, consumers: Sequence[Consumer] | None) -> None:
        name = queue.listed.name
        if consumers is None and queue.attributes:
            return
        attributes = settings_attributes(
            queue.listed,
            consumers,
            self._declared.consumers.get(name),
            self._declared.delivery_delays_s.get(name),
            self._config.backoff_of(name),
        )
        if queue.attributes.get(_BACKOFF) is not None:
            # Only until the next list: a Worker may report it too, and must not be contradicted for ever.
            attributes.setdefault(_BACKOFF, None)
        queue.attributes = attributes

    def _back_off(self, error: ApiError) -> None:
        """Handle errors that affect every request: the API asks for a pause, or rejects the token."""
        if isinstance(error, RateLimited):
            self._budget.pause(error.retry_after_s)
        elif isinstance(error, Unauthorized):
            self._budget.pause(_UNAUTHORIZED_PAUSE_S)

    def _note_answer(self, *subjects: Subject) -> None:
        # Where no backlog can be read, the list alone says nothing about any queue.
        if not self._queues.is_blind:
            self._answered_at_s = self._clock_s()
        for subject in subjects:
            if self._logged.pop(subject, None) is not None:
                log.info("Cloudflare: %s: it answers again", subject)

    def _log_once(self, subject: Subject, problem: str) -> None:
        """Log a problem only when it is new, instead of every half minute."""
        kind = problem.partition(";")[0]
        if self._logged.get(subject) == kind:
            return
        self._logged[subject] = kind
        log.warning("Cloudflare: %s", problem)

    def _patience_s(self) -> float:
        """Return how long silence may be intended and not a failure."""
        planned_s = self._config.poll_interval_s if len(self._queues) else self._config.discovery_interval_s
        return max(_SILENT_AFTER_S, 2 * planned_s)

    def _drained_queue_id(self) -> str | None:
        drain = self._config.drain
        return self._ids.get(drain.queue) if drain else None

    def _open(self, budget: Budget | None) -> CloudflareApi:
        config = self._config
        return CloudflareApi(config.api_url, config.account_id, config.token, timeout_s=config.timeout_s, budget=budget)


def _one_at_a_time(emit: Emit) -> Emit:
    """Return a thread-safe `emit`."""
    lock = threading.Lock()

    def locked(events: Sequence[Event]) -> None:
        with lock:
            emit(events)

    return locked
