"""The whole configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, SerializeAsAny

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
from streaming.config.tracking import Judging, QueueOverrides, settings_of
from streaming.core.settings import Settings


class Config(Section):
    """One file, every section optional."""

    spark: SparkSection = Field(default_factory=SparkSection)
    restarts: Restarts = Field(default_factory=Restarts)
    source: Sources = Field(default_factory=Sources)
    http: HttpSection = Field(default_factory=HttpSection)
    signal_log: SignalLogSection = Field(default_factory=SignalLogSection)
    quarantine: QuarantineSection = Field(default_factory=QuarantineSection)
    judge: Judging = Field(default_factory=Judging)
    queues: tuple[QueueOverrides, ...] = ()
    replay: ReplaySection = Field(default_factory=ReplaySection)
    log: LogSection = Field(default_factory=LogSection)
    collect: Mapping[str, SerializeAsAny[BaseModel]] = Field(default_factory=dict)
    """One section per kind of collector, each with the model of its own folder."""
    alerts: SerializeAsAny[BaseModel] | None = None
    alertmanager: SerializeAsAny[BaseModel] | None = None

    def section(self, name: str) -> Any:
        """A section whose model belongs to another room: `alerts`, `alertmanager`, or `collect.KIND`; None when absent."""
        room, _, kind = name.partition(".")
        found = getattr(self, room)
        return found.get(kind) if kind else found


def to_settings(config: Config, *, now_is_event_time: bool = False) -> Settings:
    """What the core and the judge are told. `now_is_event_time` is true in a replay."""
    return settings_of(config.judge, config.queues, now_is_event_time=now_is_event_time)
