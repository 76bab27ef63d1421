"""Which SQS queues to watch, how often, and the service's own telemetry queue."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from sources.section import CollectorSection, Seconds
from sources.sqs.values import queue_name

Text = Annotated[str, Field(min_length=1)]

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")


class DiscoveryConfig(CollectorSection):
    """Which queues are watched: the listed ones that pass every filter, and those named by URL.

    With `urls` alone nothing is listed; with neither `urls` nor `prefixes`, all queues of the account and region
    are.
    """

    prefixes: tuple[Text, ...] = ()
    """Queue name prefixes; SQS itself does the filtering."""
    urls: tuple[Text, ...] = ()
    """Queue URLs to watch regardless of the filters: of any account, in a region that is read."""
    include: tuple[Text, ...] = ("*",)
    """Shell-style patterns; a listed queue's name must match one of them."""
    exclude: tuple[Text, ...] = ()
    """Shell-style patterns; a listed queue's name must match none of them."""
    tags: dict[Text, str] = Field(default_factory=dict)
    """Tag → shell-style pattern for its value (`"*"`: any value); a listed queue must have all of these tags."""
    with_dead_letter_queues: bool = True
    """Also watch the dead-letter queues of watched queues, regardless of the filters."""

    @field_validator("urls")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not re.match(r"https?://[^/]+/.", url):
                raise ValueError(f"{url!r} is not a queue URL; write https://sqs.REGION.amazonaws.com/ACCOUNT/NAME")
        return urls

    @property
    def lists(self) -> bool:
        """Whether queues are listed at all."""
        return bool(self.prefixes) or not self.urls

    @property
    def is_filtered(self) -> bool:
        """Whether queues of the account may be left out."""
        return self != DiscoveryConfig(with_dead_letter_queues=self.with_dead_letter_queues)

    def fits_name(self, name: str) -> bool:
        """Whether a listed queue's name passes `include` and `exclude`."""
        return any(fnmatchcase(name, p) for p in self.include) and not any(fnmatchcase(name, p) for p in self.exclude)

    def fits_tags(self, tags: dict[str, str]) -> bool:
        """Whether a listed queue's tags pass `tags`."""
        return all(name in tags and fnmatchcase(tags[name], p) for name, p in self.tags.items())


class TelemetryQueueConfig(CollectorSection):
    """A queue of the service's own, to which instrumented applications send telemetry (`to="sqs:NAME"`)."""

    queue: Text
    """Its name or URL. Nobody else may receive from it, and it must not be watched."""
    wait_s: int = Field(default=5, ge=0, le=20)
    """How long a receive waits for messages."""
    lease_s: int = Field(default=300, ge=10, le=43_200)
    """Visibility timeout of received telemetry: the time there is to write its events durably."""

    @field_validator("queue")
    @classmethod
    def _is_a_queue(cls, queue: str) -> str:
        if "/" not in queue and not _QUEUE_NAME.fullmatch(queue):
            raise ValueError(f"{queue!r} is neither a queue's name nor its URL")
        return queue

    @property
    def name(self) -> str:
        """The queue's name."""
        return queue_name(self.queue)


class SqsCollectorConfig(CollectorSection):
    """The collector for Amazon SQS. It needs only the rights in `sources/sqs/iam-policy.json`.

    Credentials come the usual AWS ways (environment, profile, role), never from here.
    """

    regions: tuple[Text, ...] = ()
    """AWS regions; if empty, the region of the environment or profile."""
    profile: str | None = None
    """A profile in the AWS configuration, which may assume a role in another account."""
    endpoint_url: str | None = None
    """URL of a VPC endpoint, or of a local stand-in for SQS."""
    name: Text = "sqs-collector"
    """Name of the collector in heartbeats; the region is appended."""
    discovery: DiscoveryConfig = DiscoveryConfig()
    interval_s: Seconds = 30.0
    """Interval between polls of every queue's attributes; each poll is one request per queue."""
    discovery_interval_s: Seconds = 300.0
    """Interval between searches for new queues and changed tags."""
    move_task_interval_s: Seconds = 60.0
    """Interval between checks for a new redrive task on a dead-letter queue where none is running."""
    concurrency: int = Field(default=8, ge=1, le=64)
    """Maximum number of concurrent requests per region."""
    telemetry: TelemetryQueueConfig | None = None
    """Also receive telemetry from this queue."""

    @model_validator(mode="after")
    def _telemetry_is_not_watched(self) -> Self:
        if self.telemetry is not None:
            for url in self.discovery.urls:
                if queue_name(url) == self.telemetry.name:
                    raise ValueError(
                        f"telemetry.queue {self.telemetry.name!r} is also watched (discovery.urls): "
                        "receiving from a watched queue would take messages from its consumers"
                    )
        return self
