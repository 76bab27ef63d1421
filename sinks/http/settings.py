"""What the HTTP service is told. Plain values; the composition root fills them from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sinks.clock import wall_ms
from sinks.http.access import Access
from sinks.http.connections import ConnectionLimits
from sinks.http.staging import Stage
from sinks.prometheus import Family
from sources.wire import Decoded, decode_records
from streaming.core.settings import Settings


@dataclass(frozen=True)
class IngestSettings:
    """`POST /api/v1/events`. Sizes in bytes."""

    stage: Stage
    """Where accepted bodies go before they are acknowledged."""
    token: str | None = None
    """The bearer token senders must show; None lets everybody in who reaches the port."""
    max_body_bytes: int = 4 * 1024 * 1024
    """As sent, compressed or not."""
    max_inflated_bytes: int = 16 * 1024 * 1024
    """After decompression."""
    max_events: int = 100_000
    """Of one body."""
    max_bytes_at_once: int = 64 * 1024 * 1024
    """Of all bodies in work, as sent and decompressed; more are told to come back."""
    max_concurrent: int = 16
    """Bodies in work at once; more are told to come back."""
    body_within_s: float = 30.0
    """How long a sender may take to send its body."""
    decode: Callable[[Sequence[bytes]], Decoded] = decode_records


@dataclass(frozen=True)
class Page:
    """A further page to serve, for example the runbook."""

    body: bytes
    content_type: str = "text/html; charset=utf-8"


@dataclass(frozen=True)
class HttpSettings:
    """Everything but the address, which `serve` takes."""

    access: Access = field(default_factory=Access)
    """Host names and credentials."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    ready_within_s: float = 60.0
    """Not ready when the last batch is older."""
    judging: Settings = field(default_factory=Settings)
    """What the judge goes by: limits per queue pattern."""
    runbook_base_url: str | None = None
    """Address of the runbook, linked from every signal."""
    ingest: IngestSettings | None = None
    """None: the endpoint answers that it is off."""
    about_sinks: Sequence[Callable[[], Iterable[Family]]] = ()
    """Further metrics, asked for at every scrape."""
    job_fault: Callable[[], str | None] | None = None
    """Says what is wrong with the job's own process when something is: then not even healthy."""
    pages: Mapping[str, Page] = field(default_factory=dict)
    """By path, for example `/runbook`."""
    clock_ms: Callable[[], int] = wall_ms
    max_streams: int = 64
    """Browsers that are told of each snapshot at once; more of them poll."""
