"""The sources of telemetry events."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from streaming.config.kafka import KafkaConnection
from streaming.config.section import Bytes, Count, Names, Properties, Section
from streaming.folder import local_folder

REFUSED_OPTIONS = frozenset(
    {"group.id", "auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"}
)
"""Options controlled by Spark's connector."""


class KafkaSource(KafkaConnection):
    """Telemetry from Kafka topics."""

    topics: Names
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where a new checkpoint starts; an existing one continues where it stopped."""
    max_bytes_per_trigger: Bytes = 256 * 1024 * 1024
    """Maximum size of a batch while catching up; Spark limits by records, so their size is sampled at start."""
    max_records_per_trigger: Count | None = None
    """The same limit in records; replaces sampling."""
    options: Properties = Field(default_factory=dict)
    """Additional properties of Kafka's Java consumer, by Kafka's names."""

    @model_validator(mode="after")
    def _options_are_allowed(self) -> Self:
        for name in self.options:
            if name in REFUSED_OPTIONS:
                raise ValueError(f"options: {name} belongs to Spark's Kafka source and cannot be set")
            if "password" in name or "jaas" in name:
                raise ValueError(f"options: {name} is a secret; use sasl_password_file or ssl_certificate_file")
        return self


class SpoolSource(Section):
    """Telemetry from files in a folder; each file is read once, about a second after it gets its final name."""

    folder: str = Field(min_length=1)
    """A path, or a URI of any file system that Spark supports; a URI is read by Spark's own file source."""
    pattern: str = Field(default="*.{ndjson,json,jsonl,arrow}", min_length=1)
    """Pattern of final file names. Names that begin with a dot or an underscore are never read."""
    max_bytes_per_trigger: Bytes = 256 * 1024 * 1024
    after_reading: Literal["keep", "archive", "delete"] = "keep"
    """What happens to a file some batches after it was read: it stays, moves to `archive_folder`, or is deleted. Applications and
    collectors stop writing to a folder of 1 GiB."""
    archive_folder: str | None = None

    @model_validator(mode="after")
    def _archive_is_named(self) -> Self:
        if (self.after_reading == "archive") != (self.archive_folder is not None):
            raise ValueError("after_reading: archive and archive_folder belong together: set both or neither")
        if self.archive_folder is None:
            return self
        if _inside(self.archive_folder, self.folder):
            raise ValueError("archive_folder lies inside folder, where its files would be read again")
        if local_folder(self.folder) is not None and local_folder(self.archive_folder) is None:
            raise ValueError("archive_folder is not on the same file system as folder, which is local: give a local folder")
        return self


class Sources(Section):
    """The sources of the job; at least one is required."""

    kafka: KafkaSource | None = None
    spool: SpoolSource | None = None


def _inside(inner: str, outer: str) -> bool:
    """Whether one folder is another one or in it, also where a local one is written in two ways."""
    folders = local_folder(inner), local_folder(outer)
    paths = [Path(uri) if folder is None else folder.path.resolve() for folder, uri in zip(folders, (inner, outer), strict=True)]
    return paths[1] in (paths[0], *paths[0].parents)
