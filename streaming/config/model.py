"""The whole configuration file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel, Field, SerializeAsAny, create_model, model_validator

from streaming.config.external_sections import COLLECTOR_SECTIONS
from streaming.config.section import Section
from streaming.config.service import (
    HttpSection,
    LogSection,
    QuarantineSection,
    ReplaySection,
    Restarts,
    SignalLogSection,
    SparkSection,
)
from streaming.config.source import Sources
from streaming.config.tracking import FoldedQueues, Judging, QueueOverrides, check_together, settings_of
from streaming.core.settings import Settings
from streaming.folder import local_folder
from streaming.spool.pattern import matcher

_INGESTED: Final = tuple(f"1700000000000-{'0' * 32}.{kind}" for kind in ("ndjson", "arrow"))
"""Names of files as `sinks.http.staging` gives them."""


class CollectSection(Section):
    """Settings of the collectors, and where their events go."""

    to: str | None = None
    """`kafka://host:9092/topic`, `spool:/folder` or `http(s)://host:9400/api/v1/events`; default: where `source` reads."""


if not TYPE_CHECKING:
    # Installed packages add kinds of collectors, so the sections are known only when the program starts.
    CollectSection = create_model(
        "CollectSection",
        __base__=CollectSection,
        __doc__=CollectSection.__doc__,
        **dict.fromkeys(COLLECTOR_SECTIONS, (SerializeAsAny[BaseModel] | None, None)),
    )


class Config(Section):
    """The configuration; every section is optional."""

    spark: SparkSection = Field(default_factory=SparkSection)
    restarts: Restarts = Field(default_factory=Restarts)
    source: Sources = Field(default_factory=Sources)
    http: HttpSection = Field(default_factory=HttpSection)
    signal_log: SignalLogSection = Field(default_factory=SignalLogSection)
    quarantine: QuarantineSection = Field(default_factory=QuarantineSection)
    judge: Judging = Field(default_factory=Judging)
    queues: tuple[QueueOverrides, ...] = ()
    fold: tuple[FoldedQueues, ...] = ()
    replay: ReplaySection = Field(default_factory=ReplaySection)
    log: LogSection = Field(default_factory=LogSection)
    collect: CollectSection = Field(default_factory=CollectSection)
    alerts: SerializeAsAny[BaseModel] | None = None
    alertmanager: SerializeAsAny[BaseModel] | None = None

    @model_validator(mode="after")
    def _ingest_is_read(self) -> Self:
        if self.http.ingest.enabled:
            spool = self.source.spool
            if spool is None or local_folder(spool.folder) is None:
                raise ValueError(
                    "http.ingest needs source.spool with a local folder, from which the job reads the accepted events"
                )
            if not all(map(matcher(spool.pattern), _INGESTED)):
                raise ValueError(
                    f"source.spool.pattern {spool.pattern!r} does not match all files that http.ingest writes, *.ndjson and "
                    "*.arrow, and their events would never be read: remove the key, or use *.{ndjson,json,jsonl,arrow}"
                )
        return self

    @model_validator(mode="after")
    def _own_files_are_not_read(self) -> Self:
        spool = self.source.spool
        folder = local_folder(spool.folder) if spool is not None else None
        if spool is None or folder is None:
            return self
        reads, read_from = matcher(spool.pattern), folder.path.resolve()
        for name, path in (("quarantine.path", self.quarantine.path), ("signal_log.path", self.signal_log.path)):
            if path is not None and path.parent.resolve() == read_from and reads(path.name):
                raise ValueError(f"{name} {path} would be read as telemetry from source.spool.folder: use another folder")
        checkpoint = local_folder(self.spark.checkpoint_dir)
        if checkpoint is not None and checkpoint.path.resolve() == read_from:
            raise ValueError("spark.checkpoint_dir would be read as telemetry from source.spool.folder: use another folder")
        return self

    @model_validator(mode="after")
    def _logs_are_different_files(self) -> Self:
        log, quarantine = self.signal_log.path, self.quarantine.path
        if log is not None and quarantine is not None and (_writes(log, quarantine) or _writes(quarantine, log)):
            raise ValueError(
                f"signal_log.path {log} and quarantine.path {quarantine} share files, and the lines of one would be lost: "
                "use other names"
            )
        return self

    @model_validator(mode="after")
    def _thresholds_fit(self) -> Self:
        """What a pattern does not set is the queue's from `judge.thresholds`."""
        settings = to_settings(self)
        for i, rule in enumerate(settings.rules):
            check_together(replace(settings.defaults, **rule.thresholds), f"queues[{i}].thresholds")
        return self

    def section(self, name: str) -> Any:
        """Return an external section (`alerts`, `alertmanager` or `collect.KIND`), or None if it is absent."""
        section, _, kind = name.partition(".")
        found = getattr(self, section)
        return getattr(found, kind) if kind else found


def _writes(log: Path, other: Path) -> bool:
    """Whether a file is a log, a log's mark, or one of its rotated files: see `sinks.append_once`."""
    if other.resolve() == log.resolve():
        return True
    begins_alike = other.parent.resolve() == log.parent.resolve() and other.name.startswith(f"{log.name}.")
    suffix = other.name.removeprefix(f"{log.name}.")
    return begins_alike and (suffix == "batch" or suffix.isdecimal())


def to_settings(config: Config, *, now_is_event_time: bool = False) -> Settings:
    """Return the settings of the core and the judge. `now_is_event_time` is true in a replay."""
    return settings_of(config.judge, config.queues, config.fold, now_is_event_time=now_is_event_time)
