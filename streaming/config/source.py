"""Where telemetry events are read from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from streaming.config.kafka import KafkaConnection
from streaming.config.section import Bytes, Count, Names, Section

REFUSED_OPTIONS = frozenset(
    {"group.id", "auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"}
)
"""Spark's connector owns these."""


class KafkaSource(KafkaConnection):
    """Telemetry from Kafka topics."""

    topics: Names
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where a new checkpoint begins; an existing one goes on where it stopped."""
    max_bytes_per_trigger: Bytes = 256 * 1024 * 1024
    """How much one batch may take when it has to catch up; records are counted, their size is sampled at start."""
    max_records_per_trigger: Count | None = None
    """The same limit in records, instead of sampling."""
    options: dict[str, str] = Field(default_factory=dict)
    """Further properties of Kafka's Java consumer, by their own names."""

    @model_validator(mode="after")
    def _options_are_allowed(self) -> Self:
        for name in self.options:
            if name in REFUSED_OPTIONS:
                raise ValueError(f"options: {name} belongs to Spark's Kafka source and cannot be set")
            if "password" in name or "jaas" in name:
                raise ValueError(f"options: {name} is a secret; use sasl_password_file or ssl_certificate_file")
        return self


class SpoolSource(Section):
    """Telemetry from files that appear in a folder: each is read once, within a second or so of having its final name."""

    folder: str = Field(min_length=1)
    """A path, or a URI of any file system Spark knows; behind a URI, Spark's own file source reads it."""
    pattern: str = "*.{ndjson,json,jsonl,arrow}"
    """Which names are final. Names that begin with a dot or an underscore are never read."""
    max_bytes_per_trigger: Bytes = 256 * 1024 * 1024
    after_reading: Literal["keep", "archive", "delete"] = "keep"
    """What becomes of a file some batches after it was read: it stays, moves to `archive_folder`, or is deleted."""
    archive_folder: str | None = None

    @model_validator(mode="after")
    def _archive_is_named(self) -> Self:
        if (self.after_reading == "archive") != (self.archive_folder is not None):
            raise ValueError("after_reading: archive and archive_folder go together")
        if self.archive_folder is not None and _inside(self.archive_folder, self.folder):
            raise ValueError("archive_folder lies inside folder, where its files would be read again")
        return self


class Sources(Section):
    """What the job reads; one of them at least."""

    kafka: KafkaSource | None = None
    spool: SpoolSource | None = None


def _inside(inner: str, outer: str) -> bool:
    return Path(outer) in (Path(inner), *Path(inner).parents)
