"""Read the queues of one account and region, without changing anything.

The five calls made here are all that the collector makes: GetQueueAttributes, ListQueues, ListQueueTags,
ListDeadLetterSourceQueues, ListMessageMoveTasks. None of them touches a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from queuewatch.clock import now_ms
from queuewatch.places import Place, place_of_arn, place_of_url
from sources.events import Event
from sources.sqs.answers import BadAnswer, read_attributes
from sources.sqs.attributes import dead_letter_arn, queue_attributes, queue_state
from sources.sqs.config import DiscoveryConfig
from sources.sqs.discovery import dead_letter_sources, listed_urls, urls_in
from sources.sqs.move_tasks import Progress, latest, redrive_task
from sources.sqs.parallel import in_slices
from sources.sqs.problems import Problem
from sources.sqs.values import queue_name

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_PROGRESS_KNOWN_MS: Final = 300_000
"""A running task that was not read for this long may have gone on: it must not seem to have stopped moving messages."""

_MOST_SOURCES: Final = 100
"""Queues named as the sources of a dead-letter queue: an event with the names of a thousand is too long."""
_MOST_UNANSWERED: Final = 5
"""Calls in a row that SQS did not answer, after which the others of a pass are left out: each takes a minute."""

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass
class _Queue:
    """A watched queue and what is known about it."""

    url: str
    place: Place
    arn: str | None = None
    target: str = ""
    """The ARN of its dead-letter queue when it was last read, empty without one."""
    tags: dict[str, str] | None = None
    """None until they were read, as are the sources."""
    sources: list[str] | None = None
    task: dict[str, Any] | None = None
    has_task: bool = False
    """Whether a task was ever reported: one that is no longer known has to be withdrawn."""
    progress: Progress | None = None
    task_read_at: int = 0


class AccountReader:
    """Finds queues and reads their attributes, several at a time.

    Call `discover` before `read`. Errors of single queues are kept in `problems` until `take_problems`; only a failure to
    list the queues raises. Both end at once when `stop` is set, and leave out the remaining calls while SQS does not answer.
    """

    def __init__(
        self,
        client: SQSClient,
        discovery: DiscoveryConfig,
        *,
        regions: Sequence[str] = (),
        concurrency: int = 8,
        move_task_interval_s: float = 60.0,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`regions` are those that other readers read with the same configuration."""
        self._client = client
        self._discovery = discovery
        self._named = urls_in(client.meta.region_name, discovery, regions)
        self._concurrency = concurrency
        self._move_task_interval_ms = move_task_interval_s * 1000
        self._clock_ms = clock_ms
        self._queues: dict[str, _Queue] = {}
        self._problems: list[Problem] = []
        self._lock = threading.Lock()
        self._unanswered = 0
        """Calls in a row that SQS did not answer."""
        self._answered = False
        """Whether a call has succeeded since `discover` last beat."""
        self.unread_tags = 0
        """Listed queues of which the last search could not tell whether they are wanted: their tags could not be read."""

    @property
    def places(self) -> list[Place]:
        """The queues watched now."""
        return [queue.place for queue in self._queues.values()]

    @property
    def misses_queues(self) -> bool:
        """Whether a queue named by URL does not exist, or listed ones may be wanted that are not watched."""
        return self.unread_tags > 0 or any(url not in self._queues for url in self._named)

    @property
    def region(self) -> str:
        """The client's region."""
        return self._client.meta.region_name

    def discover(self, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
        """Find queues, their tags, and which queues send dead letters to them; `beat` is called meanwhile as calls succeed.

        Raises botocore's errors if they cannot be listed: then the known ones, and those named by URL, are still read.
        """
        self._unanswered = 0
        self._answered = False
        try:
            [listed] = self._all([self._discovery], partial(listed_urls, self._client), stop, beat) or [[]]
        except (ClientError, BotoCoreError):
            self._queues |= self._found((url for url in self._named if url not in self._queues), stop, beat)
            raise
        self._queues = self._found(dict.fromkeys((*self._named, *listed)), stop, beat)

    def read(self, stop: threading.Event) -> Iterator[list[Event]]:
        """Yield one `queue_state` per readable queue, in slices as they come; a queue that is gone is no longer watched."""
        self._unanswered = 0
        for events in in_slices(self._queues.values(), self._read_one, threads=self._concurrency, stop=stop):
            if events:
                yield events
        gone = {problem.url for problem in self._problems if problem.gone}
        self._queues = {url: queue for url, queue in self._queues.items() if url not in gone}

    def take_problems(self) -> list[Problem]:
        """Return the problems since the last call."""
        with self._lock:
            taken, self._problems = self._problems, []
        return taken

    def _found(self, urls: Iterable[str], stop: threading.Event, beat: Callable[[], None]) -> dict[str, _Queue]:
        """Return those of the queues that are wanted, and their dead-letter queues."""
        looked_at = self._all(urls, self._look_at, stop, beat)
        kept = {queue.url: queue for queue in looked_at if self._is_wanted(queue)}
        self.unread_tags = sum(queue.tags is None and queue.url not in kept for queue in looked_at)
        if self._discovery.with_dead_letter_queues:
            self._all(kept.values(), self._read_attributes, stop, beat)
            missing = _unwatched_dead_letter_queues(kept.values())
            kept |= {queue.url: queue for queue in self._all(missing, self._look_at, stop, beat)}
        return kept

    def _look_at(self, url: str) -> _Queue:
        known = self._queues.get(url)
        queue = known or _Queue(url, place_of_url(url, self.region))
        queue.tags = self._try(queue, "ListQueueTags", self._tags, queue.tags)
        queue.sources = self._try(queue, "ListDeadLetterSourceQueues", self._sources, queue.sources)
        return queue

    def _tags(self, queue: _Queue) -> dict[str, str]:
        return dict(self._client.list_queue_tags(QueueUrl=queue.url).get("Tags", {}))

    def _sources(self, queue: _Queue) -> list[str]:
        return dead_letter_sources(self._client, queue.url)[:_MOST_SOURCES]

    def _is_wanted(self, queue: _Queue) -> bool:
        return queue.url in self._discovery.urls or self._discovery.fits_tags(queue.tags or {})

    def _read_attributes(self, queue: _Queue) -> dict[str, str] | None:
        return self._try(queue, "GetQueueAttributes", self._attributes, None)

    def _attributes(self, queue: _Queue) -> dict[str, str]:
        attributes = read_attributes(self._client, queue.url)
        queue.arn = attributes.get("QueueArn") or queue.arn
        queue.target = dead_letter_arn(attributes) or ""
        if queue.arn:
            queue.place = place_of_arn(queue.arn)
        return attributes

    def _read_one(self, queue: _Queue) -> Event | None:
        answer = self._read_attributes(queue)
        if answer is None:
            return None
        at = self._clock_ms()
        attributes = queue_attributes(answer)
        # Also without any: the service keeps the value reported last.
        if queue.tags is not None:
            attributes["tags"] = queue.tags
        if queue.sources is not None:
            attributes["dead_letter_sources"] = queue.sources
        self._follow_task(queue, at)
        if queue.has_task:
            attributes["redrive_task"] = queue.task
        return queue_state(queue.place, at, attributes)

    def _follow_task(self, queue: _Queue, at: int) -> None:
        """Read the redrive task, which only a dead-letter queue has; a running one is read each time."""
        # The clock may be set back.
        due = queue.progress is not None or abs(at - queue.task_read_at) >= self._move_task_interval_ms
        # A task goes on when the queue loses its last source.
        may_have_task = bool(queue.sources) or queue.progress is not None
        if not may_have_task or queue.arn is None or not due:
            return
        queue.task_read_at = at

        def read(queue: _Queue) -> list[Any] | None:
            return list(self._client.list_message_move_tasks(SourceArn=queue.arn or "").get("Results", ()))

        found = self._try(queue, "ListMessageMoveTasks", read, None)
        if found is None:
            if not queue.sources:  # SQS lists tasks of dead-letter queues only, and will not tell how this one ends
                queue.task = queue.progress = None
            elif queue.progress is not None and abs(at - queue.progress.at) >= _PROGRESS_KNOWN_MS:
                queue.task = None
            return
        task = latest(found)
        if task is None:
            queue.task = queue.progress = None
        else:
            queue.task, queue.progress = redrive_task(task, at, queue.progress)
            queue.has_task = True

    def _try(self, queue: _Queue, call: str, action: Callable[[_Queue], Found], otherwise: Found) -> Found:
        if self._unanswered >= _MOST_UNANSWERED:
            return otherwise
        try:
            found = action(queue)
        except (ClientError, BotoCoreError, BadAnswer) as error:
            problem = Problem.of(queue_name(queue.url), call, error, queue.url)
        else:
            self._unanswered = 0
            self._answered = True
            return found
        with self._lock:
            self._unanswered = self._unanswered + 1 if problem.unanswered else 0
            self._problems.append(problem)
        return otherwise

    def _all(
        self, items: Iterable[Item], action: Callable[[Item], Found | None], stop: threading.Event, beat: Callable[[], None]
    ) -> list[Found]:
        """Run the action for each item; `beat` is called every few seconds in which a call has succeeded."""
        found: list[Found] = []
        for some in in_slices(items, action, threads=self._concurrency, stop=stop):
            found += some
            if self._answered:
                self._answered = False
                beat()
        return found


def _unwatched_dead_letter_queues(queues: Collection[_Queue]) -> list[str]:
    """Return the URLs of the queues' dead-letter queues that are not among them."""
    watched = {queue.place for queue in queues}
    missing: dict[str, None] = {}
    for queue in queues:
        place = place_of_arn(queue.target) if queue.target else None
        # The client cannot read outside its account and region.
        if place is not None and place not in watched and place.scope == queue.place.scope:
            missing[f"{queue.url.rstrip('/').rsplit('/', 1)[0]}/{place.queue}"] = None
    return list(missing)
