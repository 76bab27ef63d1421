"""Which SQS queues to watch, how often, and the service's own telemetry queue."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]

_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DiscoveryConfig(_Section):
    """Which queues are watched: the listed ones that pass every filter, and those named by URL.

    With `urls` alone nothing is listed; with neither `urls` nor `prefixes`, all queues of the account and region
    are.
    """

    prefixes: tuple[Text, ...] = ()
    """Beginnings of queue names, asked of SQS itself."""
    urls: tuple[Text, ...] = ()
    """Queue URLs, watched whatever the filters say; they may belong to another account."""
    include: tuple[Text, ...] = ("*",)
    """Shell-style patterns; a listed queue's name must fit one."""
    exclude: tuple[Text, ...] = ()
    """Shell-style patterns; a listed queue's name must fit none."""
    tags: dict[Text, str] = Field(default_factory=dict)
    """Tag → shell-style pattern of its value; a listed queue must have them all. `"*"`: any value."""
    with_dead_letter_queues: bool = True
    """Watch the dead-letter queues of watched queues too, whatever the filters say."""

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

    def fits_name(self, name: str) -> bool:
        """Whether a listed queue's name passes `include` and `exclude`."""
        return any(fnmatchcase(name, p) for p in self.include) and not any(fnmatchcase(name, p) for p in self.exclude)

    def fits_tags(self, tags: dict[str, str]) -> bool:
        """Whether a listed queue's tags pass `tags`."""
        return all(name in tags and fnmatchcase(tags[name], p) for name, p in self.tags.items())


class TelemetryQueueConfig(_Section):
    """A queue of the service's own, to which instrumented applications send telemetry (`to="sqs:NAME"`)."""

    queue: Text
    """Its name or URL. Nobody else may receive from it, and it must not be watched."""
    wait_s: int = Field(default=5, ge=0, le=20)
    """How long a receive waits for messages."""
    lease_s: int = Field(default=300, ge=10, le=43_200)
    """How long received telemetry is ours while it is written; its visibility timeout."""

    @field_validator("queue")
    @classmethod
    def _is_a_queue(cls, queue: str) -> str:
        if "/" not in queue and not _QUEUE_NAME.fullmatch(queue):
            raise ValueError(f"{queue!r} is neither a queue's name nor its URL")
        return queue

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.rstrip("/").rsplit("/", 1)[-1]


class SqsCollectorConfig(_Section):
    """The collector for Amazon SQS. It needs no more rights than `iam-policy.json` beside this file.

    Credentials come the usual AWS ways (environment, profile, role), never from here.
    """

    regions: tuple[Text, ...] = ()
    """AWS regions; none: the one of the environment or profile."""
    profile: str | None = None
    """A profile of the AWS configuration, which may assume a role in another account."""
    endpoint_url: str | None = None
    """A stand-in for SQS, or a VPC endpoint."""
    name: Text = "sqs-collector"
    """How heartbeats call it, with the region appended."""
    discovery: DiscoveryConfig = DiscoveryConfig()
    interval_s: Seconds = 30.0
    """Between two looks at the attributes of every queue: one request per queue."""
    discovery_interval_s: Seconds = 300.0
    """Between two looks for new queues and changed tags."""
    move_task_interval_s: Seconds = 60.0
    """Between two looks for redrive tasks of a dead-letter queue without one running."""
    concurrency: int = Field(default=8, ge=1, le=64)
    """Requests at a time, per region."""
    telemetry: TelemetryQueueConfig | None = None
    """Also drain this telemetry queue."""

    @model_validator(mode="after")
    def _telemetry_is_not_watched(self) -> Self:
        if self.telemetry is not None:
            for url in self.discovery.urls:
                if url.rstrip("/").rsplit("/", 1)[-1] == self.telemetry.name:
                    raise ValueError(
                        f"telemetry.queue {self.telemetry.name!r} is also watched (discovery.urls): "
                        "receiving from a watched queue would take messages from its consumers"
                    )
        return self
