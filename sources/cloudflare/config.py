"""Which Cloudflare account to watch, with which token, how often, and what is known of its consumers."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from sources.cloudflare.settings import Backoff
from sources.section import CollectorSection, Seconds

Patterns = tuple[Annotated[str, Field(min_length=1)], ...]
"""Shell-style patterns of queue names, such as `orders-*`."""


class SampleConfig(CollectorSection):
    """Sampling of messages without receiving them: they stay in the queue. Cloudflare requires Queues Edit for it."""

    size: int = Field(default=10, ge=0, le=100)
    """Messages per sample; 0 turns sampling off, for a token with Queues Read only."""
    interval_s: Seconds = 60.0
    """Interval between samples of one queue. A queue without a backlog is not sampled."""
    instrumented: Patterns = ()
    """Queues whose consumers all report the outcome of their messages: there, sampled messages are tracked one by one.
    In another queue with consumers, a sampled message would seem unsettled long after it is gone."""


class BackoffConfig(CollectorSection):
    """The retry delays the handlers of some queues ask for."""

    queues: Patterns = Field(min_length=1)
    first_s: float = Field(ge=0, le=1e9)
    """The delay after the first attempt; for a handler that waits `30 ** attempts` seconds, this is 30."""
    factor: float = Field(default=2.0, ge=1)
    """The delay is multiplied by this after each further attempt; for `30 ** attempts`, this is 30 too."""


class DrainConfig(CollectorSection):
    """A queue that Workers send their telemetry to, read over HTTP pull. Its token needs Queues Edit."""

    queue: str = Field(min_length=1)
    """Its name; it needs an `http_pull` consumer."""
    batch_size: int = Field(default=100, ge=1, le=100)
    lease_s: float = Field(default=60.0, ge=1, le=43_200)
    """Lease of a pulled message: the time there is to write its events durably."""
    idle_s: Seconds = 2.0
    """Pause after a pull that returned nothing."""


class CloudflareCollectorConfig(CollectorSection):
    """The collector for Cloudflare Queues. Its token needs Queues Read, and Queues Edit for samples and `drain`."""

    account_id: str = Field(pattern=r"^[0-9A-Za-z]{1,32}$")
    """The account id; `scope` of the events."""
    token_file: Path | None = None
    """A file that contains only the API token; a line end is ignored."""
    token_env: str = "QUEUEWATCH_CLOUDFLARE_TOKEN"
    """The environment variable that holds the token; used if `token_file` is not set."""
    api_url: str = "https://api.cloudflare.com/client/v4"
    name: str | None = Field(default=None, min_length=1)
    """Name of the collector in heartbeats; by default `cloudflare:` and the account id."""

    queues: Patterns = Field(default=("*",), min_length=1)
    """Queues to watch."""
    exclude: Patterns = ()
    """Queues to leave out."""
    poll_interval_s: Seconds = 30.0
    """Interval between polls of one queue's backlog; longer if `requests_per_5min` is too low for all queues."""
    discovery_interval_s: Seconds = 300.0
    """Interval between queries for the list of queues and their settings."""
    heartbeat_interval_s: Seconds = 10.0
    requests_per_5min: int = Field(default=900, ge=10, le=1_000_000)
    """Maximum number of requests in five minutes. Cloudflare allows 1,200 per token, other users of the token included."""
    timeout_s: Seconds = 10.0

    sample: SampleConfig = SampleConfig()
    wrangler_files: tuple[Path, ...] = ()
    """`wrangler.toml`, `.json` or `.jsonc` files of Workers: they provide queue settings that the API does not return."""
    wrangler_env: str | None = None
    """The Wrangler environment to read in those files; null: the top level."""
    backoff: tuple[BackoffConfig, ...] = ()
    """Retry delays that handlers request, by queue; the first matching entry wins."""
    drain: DrainConfig | None = None

    @field_validator("api_url")
    @classmethod
    def _url_is_http(cls, url: str) -> str:
        scheme, _, rest = url.partition("://")
        if scheme not in ("http", "https") or not rest or "@" in rest or "?" in rest:
            raise ValueError("write a plain https:// address without user, password or query")
        if scheme == "http" and rest.split("/")[0].rsplit(":", 1)[0] not in ("127.0.0.1", "localhost", "[::1]"):
            raise ValueError("the token would travel unencrypted: write https://")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _drained_queue_is_not_watched_by_itself(self) -> Self:
        # Reading the telemetry queue must not make telemetry about it that is read from it in turn.
        if self.drain is not None and self.drain.queue in self.sample.instrumented:
            raise ValueError(f"drain.queue {self.drain.queue!r} carries telemetry; take it out of sample.instrumented")
        return self

    @property
    def collector_name(self) -> str:
        """Who sends the heartbeats."""
        return self.name or f"cloudflare:{self.account_id}"

    def token(self) -> str:
        """The token. Raises `ValueError` naming what has to be set."""
        if self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"token_file {self.token_file} cannot be read: {error}") from error
        else:
            token = os.environ.get(self.token_env, "").strip()
        if not token:
            where = f"token_file {self.token_file} is empty" if self.token_file else f"{self.token_env} is not set"
            raise ValueError(f"there is no API token: {where}")
        return token

    @property
    def token_remedy(self) -> str:
        """What to do about a token that is refused."""
        needed = "Queues Edit (Queues Read, if sample.size is 0)" if self.sample.size else "Queues Read"
        return f"Create an API token with {needed} for this account and give it as token_file or {self.token_env}."

    def is_watched(self, queue: str) -> bool:
        """Whether events of the queue are wanted."""
        return _any(self.queues, queue) and not _any(self.exclude, queue)

    def is_instrumented(self, queue: str) -> bool:
        """Whether every consumer of the queue reports what becomes of its messages."""
        return _any(self.sample.instrumented, queue)

    def backoff_of(self, queue: str) -> Backoff | None:
        """The delays its handler asks for, when they are configured."""
        rule = next((rule for rule in self.backoff if _any(rule.queues, queue)), None)
        return None if rule is None else Backoff(rule.first_s, rule.factor)


def _any(patterns: Patterns, queue: str) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in patterns)
