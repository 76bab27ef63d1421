"""Settings of the HTTP service. Plain values, filled from the configuration by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from alerts.objectives import Objective
from sinks.clock import wall_ms
from sinks.http.access import Access
from sinks.http.connections import ConnectionLimits
from sinks.http.staging import Stage
from sinks.prometheus import Family
from sources.wire import Decoded, decode_records
from streaming.core.settings import Settings

RUNBOOK_PATH: Final = "/runbook"


@dataclass(frozen=True)
class IngestSettings:
    """`POST /api/v1/events`. Sizes in bytes."""

    stage: Stage
    """Where accepted bodies are stored before they are acknowledged."""
    token: str | None = None
    """The bearer token that senders must present; None accepts everybody who reaches the port."""
    max_body_bytes: int = 4 * 1024 * 1024
    """Maximum size as sent, compressed or not."""
    max_inflated_bytes: int = 16 * 1024 * 1024
    """Maximum size after decompression."""
    max_events: int = 100_000
    """Maximum events of one body."""
    max_bytes_at_once: int = 64 * 1024 * 1024
    """Maximum size of all bodies being received and processed, as sent plus decompressed; beyond it, senders must retry."""
    max_concurrent: int = 16
    """Maximum bodies being processed at once, those being received not counted; beyond it, senders must retry."""
    body_within_s: float = 30.0
    """Timeout for receiving a body."""
    decode: Callable[[Sequence[bytes]], Decoded] = decode_records


@dataclass(frozen=True)
class Page:
    """An additional page to serve, for example the runbook."""

    body: bytes
    content_type: str = "text/html; charset=utf-8"


@dataclass(frozen=True)
class HttpSettings:
    """All settings except the address, which is passed to `serve`."""

    access: Access = field(default_factory=Access)
    """Host names and credentials."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    ready_within_s: float = 60.0
    """Not ready if the last batch is older than this."""
    judging: Settings = field(default_factory=Settings)
    """The judge's limits per queue pattern."""
    runbook_base_url: str | None = None
    """URL of the runbook, linked from every signal; None: the one of `pages`, if there is one."""
    grafana_url: str | None = None
    """Base of the links to the queue dashboard; None: no links."""
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    """Service-level objectives by name, shown for the queues they are about."""
    ingest: IngestSettings | None = None
    """None if the endpoint is off."""
    about_sinks: Sequence[Callable[[], Iterable[Family]]] = ()
    """Additional metrics, collected at every scrape."""
    metrics_left_out: frozenset[str] = frozenset()
    """Names of the metrics that `/metrics` leaves out."""
    metrics_zero_states: bool = True
    """Whether status and basis have a series with 0 for every state that a queue is not in."""
    job_fault: Callable[[], str | None] | None = None
    """Returns the fault of the job's process, if any; then the service is not healthy."""
    job_silent_s: Callable[[], float] | None = None
    """Returns the seconds since the job's last committed batch, by a clock that never jumps."""
    pages: Mapping[str, Page] = field(default_factory=dict)
    """Additional pages by path, for example `RUNBOOK_PATH`."""
    clock_ms: Callable[[], int] = wall_ms
    max_streams: int = 64
    """Maximum browsers that are notified of each snapshot, of half the connections of `connections`; additional ones poll."""
