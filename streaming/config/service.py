"""Settings of the service: Spark, HTTP, destinations of results, logging."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from streaming.config.kafka import KafkaTopic
from streaming.config.section import NOT_A_TOKEN, Bytes, Count, Properties, Seconds, Secret, Section, is_token, secret_of
from streaming.judge.metrics import METRIC_BY_NAME

SPARK_CONF_OWNED = frozenset(
    {
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.session.timeZone",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }
)
"""Settings that the pipeline depends on; `spark.conf` must not change them."""

_MASTER: Final = re.compile(
    r"local(\[([1-9][0-9]*|\*)(\s*,\s*[1-9][0-9]*)?\])?"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
    r"|yarn|(spark|k8s)://\S+"
)
_HEAP_SIZE: Final = re.compile(r"[1-9][0-9]*[kmgt]", re.IGNORECASE)


class SparkSection(Section):
    """Settings of Spark, which runs the job."""

    master: str = "local[*]"
    """The Spark master, as in `spark-submit --master`. A job started by spark-submit uses that command's instead."""
    shards: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of parts of the state, each processed by one core. Fixed for the life of a checkpoint."""
    trigger_interval_s: Seconds = 0.5
    """Minimum time between the starts of two batches; 0 runs them without a pause."""
    checkpoint_dir: str = Field(default="queuewatch-data/checkpoint", min_length=1)
    """The folder of everything that survives a restart: a path, or a URI of a file system that all Spark machines share."""
    batch_deadline_s: Annotated[float, Field(ge=10)] = 240
    """Longest duration of a batch. Beyond it, Spark's Python workers are killed, and if that does not help, Java."""
    driver_memory: str = "2g"
    """Heap of the Java process; in local mode this is all of Spark. Python needs additional memory. spark-submit has its own."""
    conf: Properties = Field(default_factory=dict)
    """Additional Spark settings, by Spark's names."""

    @field_validator("master")
    @classmethod
    def _is_master(cls, master: str) -> str:
        if not _MASTER.fullmatch(master):
            raise ValueError(f"{master!r} is not a Spark master: use local[*], local[4], spark://host:7077, yarn or k8s://…")
        return master

    @field_validator("driver_memory")
    @classmethod
    def _is_heap_size(cls, size: str) -> str:
        if not _HEAP_SIZE.fullmatch(size):
            raise ValueError(f"{size!r} is not a size that Java accepts: use a whole number with its unit, such as 2g or 1500m")
        return size

    @model_validator(mode="after")
    def _conf_is_ours_to_give(self) -> Self:
        for name in self.conf:
            if not name.startswith("spark."):
                raise ValueError(f"conf: {name} is not a Spark setting: those begin with spark.")
            if name in SPARK_CONF_OWNED:
                raise ValueError(f"conf: {name} is set by the pipeline and cannot be changed")
        return self


class IngestSection(Section):
    """`POST /api/v1/events`, for Workers and small senders. The job reads accepted events through `source.spool`."""

    enabled: bool = False
    token: Secret = None
    token_file: Path | None = None
    """File with the bearer token that senders must present; without a token, anyone who can reach the port can send."""
    allow_without_token: bool = False
    """Accept events without a token on a port that other machines can reach; otherwise `run` refuses to start."""
    max_body_bytes: Bytes = 4 * 1024 * 1024
    """Maximum size as sent, compressed or not."""
    max_events: Count = 100_000
    """Maximum number of events in a body; a larger body is refused."""
    max_spooled_bytes: Bytes | None = None
    """Refuse events while more bytes than this wait in the spool folder; only useful if files are not kept."""

    def bearer_token(self) -> str | None:
        """Read the token. Raises `OSError` if its file cannot be read, `ValueError` if it is empty or unusable in a header."""
        return _bearer(self.token, self.token_file)


class AuthSection(Section):
    """Access control: a user with a password (Basic), or a token (Bearer). With neither, everybody has access."""

    username: str | None = None
    password: Secret = None
    password_file: Path | None = None
    token: Secret = None
    token_file: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.username is not None) != (self.password is not None or self.password_file is not None):
            raise ValueError("username and password_file belong together: set both or neither")
        return self

    def secrets(self) -> tuple[str | None, str | None]:
        """Read password and token. Raises `OSError` if a file cannot be read, `ValueError` for one that cannot be used."""
        return _secret(self.password, self.password_file), _bearer(self.token, self.token_file)


def _bearer(given: SecretStr | None, file: Path | None) -> str | None:
    token = _secret(given, file)
    if token is not None and not is_token(token):
        raise ValueError(f"{file if given is None else 'the token'} {NOT_A_TOKEN}")
    return token


def _secret(given: SecretStr | None, file: Path | None) -> str | None:
    found = secret_of(given, file)
    if found == "":
        raise ValueError(f"{file or 'the secret'} is empty")
    return found


class TlsSection(Section):
    """HTTPS with PEM files, which are read again when they change."""

    cert_file: Path | None = None
    """The certificate with its chain."""
    key_file: Path | None = None
    """The private key, without a password."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: set both or neither")
        return self


class HttpSection(Section):
    """The status page, `/metrics`, the API and the ingest endpoint."""

    host: str = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for every interface."""
    port: Annotated[int, Field(ge=0, le=65535)] = 9400
    """0 picks a free port and logs it."""
    ready_within_s: Annotated[float, Field(gt=0)] = 60
    """`/-/ready` fails if the last batch is older than this."""
    healthy_within_s: Annotated[float, Field(gt=0)] = 600
    """`/-/healthy` fails if no batch was committed for this long: then the process should be restarted."""
    allowed_hosts: tuple[str, ...] = ()
    """Public host names of the service (`*`: any).

    IP addresses and names that nobody can register are always allowed. Others are refused to prevent DNS rebinding.
    """
    max_connections: Count = 256
    max_connections_per_address: Count = 64
    """All connections through one proxy count as one address."""
    tls: TlsSection = Field(default_factory=TlsSection)
    auth: AuthSection = Field(default_factory=AuthSection)
    """Access to the page and its API."""
    metrics_auth: AuthSection = Field(default_factory=AuthSection)
    """Access to `/metrics`."""
    metrics_left_out: tuple[str, ...] = ()
    """Metrics that `/metrics` leaves out, by name, to save series; alerts and panels that read them stay empty.

    Alerts that would fire wrongly are warned about.
    """
    metrics_zero_states: bool = True
    """Give `queuewatch_queue_status` and `queuewatch_telemetry_basis` a series with 0 for each state a queue is not in.

    Without these, a queue has eleven fewer series; alerts and panels work the same.
    """
    ingest: IngestSection = Field(default_factory=IngestSection)

    @field_validator("metrics_left_out")
    @classmethod
    def _are_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in METRIC_BY_NAME:
                close = difflib.get_close_matches(name, METRIC_BY_NAME, n=1)
                raise ValueError(f"no metric {name}{f' (did you mean {close[0]}?)' if close else ''}; docs/metrics.md lists them")
        return names


class SignalLogSection(Section):
    """The log of signal changes, one JSON object per line."""

    path: Path | None = None
    max_bytes: Bytes = 64 * 1024 * 1024
    """The file is rotated at this size."""
    keep_files: Annotated[int, Field(ge=1, le=10_000)] = 5
    """The number of earlier files that are kept: 10,000 at most, because a rotation looks each of them up."""
    kafka: KafkaTopic | None = None


class QuarantineSection(Section):
    """Storage for unreadable events, with the reason, for inspection."""

    path: Path | None = None
    max_bytes: Bytes = 16 * 1024 * 1024
    """Only the newest bytes up to this size are kept."""
    kafka: KafkaTopic | None = None


class ReplaySection(Section):
    """Defaults of `queuewatch replay`."""

    every_s: Annotated[float, Field(gt=0)] = 60
    engine: Literal["local", "spark"] = "local"
    shards: Annotated[int, Field(ge=1, le=256)] = 2


class LogSection(Section):
    """The service's own log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: readable text on a terminal, otherwise JSON."""
    spark_level: Literal["DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"] = "ERROR"


class Restarts(Section):
    """What happens when the query fails, for example because the broker is down."""

    max_failures: Count = 5
    """Give up after this many failures in a row without a successful batch."""
    wait_s: Seconds = 1
    """Pause before the first restart; doubled each time."""
    longest_wait_s: Seconds = 60

    @model_validator(mode="after")
    def _waits_in_order(self) -> Self:
        if self.longest_wait_s < self.wait_s:
            raise ValueError("longest_wait_s is shorter than wait_s")
        return self
