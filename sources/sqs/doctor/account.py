"""Read the settings of an account's queues, one region at a time. Every call is one of `iam-policy-doctor.json`.

It makes about one call per queue: 1,000 queues take seconds, not minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from queuewatch.places import Place, place_of_arn, place_of_url
from sources.doctor.finding import Finding, Severity
from sources.sqs.answers import BadAnswer, read_attributes
from sources.sqs.config import DiscoveryConfig
from sources.sqs.discovery import dead_letter_sources, listed_urls, urls_in
from sources.sqs.doctor.lambdas import Consumers
from sources.sqs.doctor.settings import MoveTask, Queues, QueueSettings, Redrive, RedriveAllow
from sources.sqs.move_tasks import latest
from sources.sqs.problems import Problem, is_unanswered
from sources.sqs.values import queue_name, to_number, to_policy

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

Item = TypeVar("Item")
Found = TypeVar("Found")

POLICY_PAGE: Final = "sources/sqs/iam-policy-doctor.json"
_RIGHTS: Final = f"Check the login and its rights: it needs those that {POLICY_PAGE} lists."
_AGAIN: Final = "Check the network, and try again."


class RegionReader:
    """Reads one region. Anything unreadable is then in `findings`, under the rule `not_examined`."""

    def __init__(
        self,
        client: SQSClient,
        discovery: DiscoveryConfig,
        consumers: Consumers | None = None,
        *,
        regions: Sequence[str] = (),
        concurrency: int,
    ) -> None:
        """`regions` are those that other readers read with the same configuration."""
        self._client = client
        self._discovery = discovery
        self._consumers = consumers
        self._concurrency = concurrency
        self._named = urls_in(client.meta.region_name, discovery, regions)
        self._lock = threading.Lock()
        self._missing: set[str] = set()
        self.findings: list[Finding] = []

    def read(self) -> Queues:
        """Return the queues that `discovery` finds, and the dead-letter queues they name.

        Raises botocore's errors when the queues cannot be listed.
        """
        urls = dict.fromkeys((*self._named, *listed_urls(self._client, self._discovery)))
        queues = {queue.key: queue for queue in self._each(urls, self._read_wanted)}
        queues |= {queue.key: queue for queue in self._each(self._targets_left_out(queues), self._read_target)}
        known = Queues.of(queues.values(), self._missing)
        completed = self._each(known.by_key.values(), lambda queue: self._read_dead_letters(queue, known))
        return Queues.of(self._with_consumers(completed), self._missing)

    def _with_consumers(self, queues: list[QueueSettings]) -> list[QueueSettings]:
        if self._consumers is None or not queues:
            return queues
        try:
            by_queue = self._consumers.read()
        except (ClientError, BotoCoreError) as error:
            # SQS alone is worth examining: the login need not have access to Lambda.
            self._not_examined(
                "info",
                Place(self._client.meta.region_name, ""),
                f"Lambda functions could not be examined: {error}",
                _AGAIN if is_unanswered(error) else _RIGHTS,
            )
            return queues
        return [replace(queue, consumers=tuple(by_queue.get(queue.key, ()))) for queue in queues]

    def _read_wanted(self, url: str) -> QueueSettings | None:
        if self._discovery.tags and url not in self._discovery.urls:
            tags = self._try(self._place(url), "ListQueueTags", lambda: self._client.list_queue_tags(QueueUrl=url))
            if tags is None or not self._discovery.fits_tags(dict(tags.get("Tags", {}))):
                return None
        return self._read_queue(url)

    def _read_queue(self, url: str) -> QueueSettings | None:
        attributes = self._try(self._place(url), "GetQueueAttributes", lambda: read_attributes(self._client, url))
        return None if attributes is None else queue_settings(url, attributes)

    def _targets_left_out(self, queues: dict[str, QueueSettings]) -> dict[tuple[str, str], None]:
        """Return URL and ARN of dead-letter queues that the filters leave out and this client can read."""
        if not self._discovery.with_dead_letter_queues:
            return {}
        base = {queue.scope: queue.url.rstrip("/").rsplit("/", 1)[0] for queue in queues.values()}
        found: dict[tuple[str, str], None] = {}
        for queue in queues.values():
            target = queue.redrive.target if queue.redrive is not None else None
            place = place_of_arn(target) if target is not None else None
            if place is not None and target is not None and target not in queues and place.scope in base:
                found[(f"{base[place.scope]}/{place.queue}", target)] = None
        return found

    def _read_target(self, target: tuple[str, str]) -> QueueSettings | None:
        url, arn = target
        try:
            attributes = read_attributes(self._client, url)
        except (ClientError, BotoCoreError, BadAnswer) as error:
            problem = Problem.of(queue_name(url), "GetQueueAttributes", error)
            if problem.gone:
                with self._lock:
                    self._missing.add(arn)
            else:
                self._not_examined("warning", self._place(url), _words(problem), _fix(problem))
            return None
        return queue_settings(url, attributes)

    def _read_dead_letters(self, queue: QueueSettings, known: Queues) -> QueueSettings:
        """Read what only dead-letter queues have: redrive tasks, and source queues that the filters left out."""
        place = Place(queue.scope, queue.name)
        if queue.redrive is None and not known.is_dead_letter_queue(queue) and self._discovery.is_filtered:
            sources = self._try(place, "ListDeadLetterSourceQueues", lambda: dead_letter_sources(self._client, queue.url))
            queue = replace(queue, has_sources=bool(sources))
        if not known.is_dead_letter_queue(queue) and not queue.has_sources:
            return queue
        answer = self._try(place, "ListMessageMoveTasks", lambda: self._client.list_message_move_tasks(SourceArn=queue.key))
        task = latest(list(answer.get("Results", ()))) if answer is not None else None
        return replace(queue, move_task=move_task(task)) if task is not None else queue

    def _place(self, url: str) -> Place:
        return place_of_url(url, self._client.meta.region_name)

    def _try(self, place: Place, call: str, action: Callable[[], Found]) -> Found | None:
        try:
            return action()
        except (ClientError, BotoCoreError, BadAnswer) as error:
            problem = Problem.of(place.queue, call, error)
        # A queue that is gone was deleted since it was listed, which is no finding. One named by its URL was not listed.
        if not problem.gone or place in {self._place(url) for url in self._named}:
            self._not_examined("warning", place, _words(problem), _fix(problem))
        return None

    def _not_examined(self, severity: Severity, place: Place, words: str, fix: str) -> None:
        finding = Finding(
            rule="not_examined",
            severity=severity,
            queue=place.queue or None,
            scope=place.scope,
            summary=" ".join(words.split()),
            fix=fix,
        )
        with self._lock:
            if finding not in self.findings:
                self.findings.append(finding)

    def _each(self, items: Iterable[Item], action: Callable[[Item], Found | None]) -> list[Found]:
        todo = list(items)
        if not todo:
            return []
        with ThreadPoolExecutor(min(self._concurrency, len(todo)), "queuewatch-doctor") as pool:
            return [found for found in pool.map(action, todo) if found is not None]


def _words(problem: Problem) -> str:
    return f"{problem.call} failed: {problem.code}: {problem.message}"


def _fix(problem: Problem) -> str:
    if problem.server_error:
        return f"Try again. Some stand-ins for SQS do not implement {problem.call}: there, ignore this."
    return _AGAIN if problem.unanswered else _RIGHTS


def queue_settings(url: str, answer: dict[str, str]) -> QueueSettings:
    """Parse the settings in GetQueueAttributes' `Attributes`."""
    arn = answer.get("QueueArn") or url
    place = place_of_arn(arn)
    redrive = to_policy(answer.get("RedrivePolicy"))
    allow = to_policy(answer.get("RedriveAllowPolicy"))
    target = str(redrive.get("deadLetterTargetArn") or "")
    managed = answer.get("SqsManagedSseEnabled")
    return QueueSettings(
        key=arn,
        arn=arn,
        url=url,
        name=place.queue if place.scope else queue_name(url),
        scope=place.scope,
        kind="fifo" if answer.get("FifoQueue") == "true" else "standard",
        visibility_timeout_s=to_number(answer.get("VisibilityTimeout")),
        retention_s=to_number(answer.get("MessageRetentionPeriod")),
        redrive=Redrive(target=target, max_receive_count=to_number(redrive.get("maxReceiveCount"))) if target else None,
        redrive_allow=redrive_allow(allow) if allow else None,
        # Old SQS stand-ins lack the attribute; it counts as off only where SQS reports that.
        encrypted=True if answer.get("KmsMasterKeyId") else None if managed is None else managed == "true",
        deduplication_scope=answer.get("DeduplicationScope"),
        throughput_limit=answer.get("FifoThroughputLimit"),
        messages=_sum(answer),
    )


def redrive_allow(policy: dict[str, Any]) -> RedriveAllow:
    """Convert a RedriveAllowPolicy parsed from its JSON."""
    named = policy.get("sourceQueueArns")
    sources = frozenset(place_of_arn(str(arn)).queue for arn in named) if isinstance(named, list) else None
    return RedriveAllow(permission=str(policy.get("redrivePermission", "allowAll")), sources=sources)


def move_task(task: Any) -> MoveTask:
    """Convert a result of ListMessageMoveTasks."""
    return MoveTask(
        status=str(task.get("Status") or "UNKNOWN"),
        failure_reason=task.get("FailureReason"),
        moved=to_number(task.get("ApproximateNumberOfMessagesMoved")),
        to_move=to_number(task.get("ApproximateNumberOfMessagesToMove")),
    )


def _sum(answer: dict[str, str]) -> int | None:
    counts = [to_number(answer.get(f"ApproximateNumberOfMessages{part}")) for part in ("", "NotVisible", "Delayed")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
