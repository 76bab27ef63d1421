"""How the service runs and where its results go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from streaming.config.kafka import KafkaTopic
from streaming.config.section import Bytes, Count, Seconds, Secret, Section

SPARK_CONF_OWNED = frozenset(
    {
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.session.timeZone",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }
)
"""Settings the pipeline cannot work without; `spark.conf` may not change them."""


class SparkSection(Section):
    """The Spark that runs the job."""

    master: str = "local[*]"
    """As in `spark-submit --master`."""
    shards: Annotated[int, Field(ge=1, le=256)] = 2
    """Into how many parts the state is cut, each worked on by one core. Fixed for the life of a checkpoint."""
    trigger_interval_s: Seconds = 0.5
    """A batch at most so often; 0 for one after another."""
    checkpoint_dir: str = Field(default="queuewatch-data/checkpoint", min_length=1)
    """What survives a restart: a path, or a URI of a file system all of Spark's machines share."""
    batch_deadline_s: Annotated[float, Field(ge=10)] = 240
    """A batch that takes longer hangs: Spark's Python workers are ended, and if that does not help, its Java process."""
    driver_memory: str = "2g"
    """The heap of the Java process, in local mode of the whole of Spark. Python's memory comes on top."""
    conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings by their own names."""

    @model_validator(mode="after")
    def _conf_is_ours_to_give(self) -> Self:
        for name in self.conf:
            if not name.startswith("spark."):
                raise ValueError(f"conf: {name} is no Spark setting: those begin with spark.")
            if name in SPARK_CONF_OWNED:
                raise ValueError(f"conf: {name} is set by the pipeline and cannot be changed")
        return self


class IngestSection(Section):
    """`POST /api/v1/events`, for Workers and small senders. What is accepted is read by `source.spool`."""

    enabled: bool = False
    token: Secret = None
    token_file: Path | None = None
    """Holds the bearer token senders must show; without one, whoever reaches the port may send."""
    allow_without_token: bool = False
    """Take events from whoever reaches the port where that is not this machine alone; without it `run` refuses to start."""
    max_body_bytes: Bytes = 4 * 1024 * 1024
    """As sent, compressed or not."""
    max_events: Count = 100_000
    """Of one body; more are refused."""
    max_spooled_bytes: Bytes | None = None
    """Refuse more while so many bytes wait in the spool folder; for a folder whose files are not kept."""

    def bearer_token(self) -> str | None:
        """The token, read now from where the configuration says. Raises `OSError` when its file cannot be read."""
        if self.token is not None:
            return self.token.get_secret_value()
        return self.token_file.read_text(encoding="utf-8").strip() if self.token_file is not None else None


class AuthSection(Section):
    """Who is let in: a user with a password (Basic), or whoever shows a token (Bearer). With neither, everybody."""

    username: str | None = None
    password: Secret = None
    password_file: Path | None = None
    token: Secret = None
    token_file: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.username is not None) != (self.password is not None or self.password_file is not None):
            raise ValueError("username and password_file belong together: give both, or neither")
        return self

    def secrets(self) -> tuple[str | None, str | None]:
        """Password and token, read now. Raises `OSError` when a file cannot be read, `ValueError` for an empty one."""
        return _secret(self.password, self.password_file), _secret(self.token, self.token_file)


def _secret(given: SecretStr | None, file: Path | None) -> str | None:
    found = given.get_secret_value() if given is not None else file.read_text(encoding="utf-8").strip() if file else None
    if found == "":
        raise ValueError(f"{file or 'the secret'} is empty")
    return found


class TlsSection(Section):
    """HTTPS. PEM files, read at the start."""

    cert_file: Path | None = None
    """The certificate with its chain."""
    key_file: Path | None = None
    """Its key, without a password."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both, or neither")
        return self


class HttpSection(Section):
    """The status page, `/metrics`, the API and the ingest endpoint."""

    host: str = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for every interface."""
    port: Annotated[int, Field(ge=0, le=65535)] = 9400
    """0 takes any free port and says which."""
    ready_within_s: Annotated[float, Field(gt=0)] = 60
    """`/-/ready` says no when the last batch is older."""
    healthy_within_s: Annotated[float, Field(gt=0)] = 600
    """`/-/healthy` says no when no batch was committed for so long: then the process should be restarted."""
    allowed_hosts: tuple[str, ...] = ()
    """Public names the service is reached by (`*`: any). Addresses and names nobody can register are known anyway; others are
    refused, so that no stranger's page can read this one by rebinding its name."""
    max_connections: Count = 256
    max_connections_per_address: Count = 64
    """All that come through one proxy count as one address."""
    tls: TlsSection = Field(default_factory=TlsSection)
    auth: AuthSection = Field(default_factory=AuthSection)
    """For the page and its API."""
    metrics_auth: AuthSection = Field(default_factory=AuthSection)
    """For `/metrics`."""
    ingest: IngestSection = Field(default_factory=IngestSection)


class SignalLogSection(Section):
    """Where each change of a signal is written, one JSON object a line."""

    path: Path | None = None
    max_bytes: Bytes = 64 * 1024 * 1024
    """The file is rotated at this size."""
    keep_files: Count = 5
    kafka: KafkaTopic | None = None


class QuarantineSection(Section):
    """Where events that could not be read are kept for inspection, with the reason."""

    path: Path | None = None
    max_bytes: Bytes = 16 * 1024 * 1024
    """The newest so many bytes are kept."""
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
    """`auto`: for people on a terminal, JSON elsewhere."""
    spark_level: Literal["DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"] = "ERROR"


class Restarts(Section):
    """What happens when the query fails, for instance because the broker is away."""

    max_failures: Count = 5
    """Give up after so many failures in a row without one good batch."""
    wait_s: Seconds = 1
    """Before the first restart; doubled each time."""
    longest_wait_s: Seconds = 60

    @model_validator(mode="after")
    def _waits_in_order(self) -> Self:
        if self.longest_wait_s < self.wait_s:
            raise ValueError("longest_wait_s is shorter than wait_s")
        return self
