"""Settings of the core and the judge: limits for all queues, and for queues whose name matches a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from pydantic import Field, ValidationInfo, create_model, field_validator, model_validator

from streaming.config.section import Count, Seconds, Section
from streaming.core.settings import FoldRule, QueueRule, Settings
from streaming.core.thresholds import Thresholds, accepted
from streaming.judge.slow_consumer import StrategyParams

LEAST_CHECK_PERIOD_MS: Final = 100
"""Checks are emulated one by one, also those of an outage that is caught up on."""


def _strategy_type(name: str, kind: type) -> Any:
    """Return the type of a parameter of the broker's slow-consumer strategies, of which -1 switches off a number."""
    if kind is bool:
        return bool
    return Annotated[kind, Field(ge=LEAST_CHECK_PERIOD_MS if name == "check_period_ms" else -1)]


def in_range(value: Any, info: ValidationInfo) -> Any:
    """Refuse a threshold with which its rule cannot be judged, or holds for everything."""
    allowed = accepted(str(info.field_name))
    if value is None or allowed.includes(value):
        return value
    off = ": a very large number switches the rule off" if value < allowed.least and allowed.off_when_large else ""
    raise ValueError(f"must be a number from {allowed.least:g} to {allowed.most:,}, not {value}{off}")


if TYPE_CHECKING:
    ThresholdOverrides = Section
    StrategyOverrides = Section
else:
    StrategyOverrides = create_model(
        "StrategyOverrides",
        __base__=Section,
        __doc__="Parameters of the broker's slow-consumer strategies; the others keep the broker's defaults.",
        **{name: (_strategy_type(name, kind) | None, None) for name, kind in get_type_hints(StrategyParams).items()},
    )
    # One optional key per threshold, so that a threshold added to the core is a key of the configuration.
    ThresholdOverrides = create_model(
        "ThresholdOverrides",
        __base__=Section,
        __doc__="Thresholds to change; the others keep their defaults. The runbook explains each under the signal named here.",
        __validators__={"in_range": field_validator("*")(in_range)},
        **{name: (kind | None, None) for name, kind in get_type_hints(Thresholds).items()},
    )


class QueueOverrides(Section):
    """Settings for queues whose name matches `pattern`. The first matching entry of the list wins."""

    pattern: str = Field(min_length=1)
    """Shell-style pattern, matched against the queue's name and `system/scope/queue`."""
    ordered: bool | None = None
    """Whether the queue keeps order within groups although its name does not end in `.fifo`. Set it before the first event of the
    queue: once queuewatch knows messages of it, `run` refuses a change until `queuewatch state reshard` has moved them."""
    visibility_timeout_s: Seconds | None = None
    """The queue's visibility timeout, if no collector reports it."""
    retention_s: Seconds | None = None
    max_receive_count: Count | None = None
    dead_letter_queue: str | None = None
    thresholds: ThresholdOverrides = Field(default_factory=ThresholdOverrides)
    """Those of `judge.thresholds` to change for these queues. `telemetry_stale_s` only sets when their status becomes `stale`:
    TelemetryStale is about a collector, which belongs to no queue."""

    def rule(self) -> QueueRule:
        """Return the rule in the core's form."""
        return QueueRule(
            pattern=self.pattern,
            thresholds=_given(self.thresholds),
            ordered=self.ordered,
            visibility_timeout_s=self.visibility_timeout_s,
            retention_s=self.retention_s,
            max_receive_count=self.max_receive_count,
            dead_letter_queue=self.dead_letter_queue,
        )


class FoldedQueues(Section):
    """Queues shown as one: one row, one set of series. The first matching entry of the list wins."""

    queues: str = Field(min_length=1)
    """Shell-style pattern, matched against the queue's name and `system/scope/queue`; also the name of the row."""
    system: str | None = None
    """Only queues of this system, for example `aws_sqs`."""

    def rule(self) -> FoldRule:
        """Return the entry in the core's form."""
        return FoldRule(self.queues, self.system)


class Judging(Section):
    """Settings for tracking and judging events, for all queues."""

    lateness_s: Seconds = 600
    """Events may arrive out of order by up to this time without changing the result."""
    skew_allowance_s: Seconds = 300
    """Events dated further in the future count as having happened on arrival, and as `ahead`."""
    top_k: Count = 10
    """Number of groups and consumers shown by name per queue; the rest is folded into `other`."""
    messages_per_queue: Count = 100
    """Number of suspects, dead letters, lost and held messages, stuck groups and slow consumers listed, and signalled, per queue
    and kind. Fewer where there are more than 20,000 of a kind in all queues together, but at least three."""
    groups_per_report: Count = 5_000
    """Number of groups of a fair queue that each shard reports: those with the oldest messages. Some others, with the most
    messages in flight, are reported too, so that `NoisyGroup` finds them; the rest is only counted."""
    consumers_per_report: Count = 1_000
    attempts_per_message: Count = 32
    """Number of receives, extensions and releases kept in a message's timeline. Extensions are dropped first."""
    forget_queue_after_s: Seconds = 3_600
    """A queue without unsettled messages and without events for this long disappears from the metrics."""
    max_queues: Count = 100_000
    """Number of queues tracked, vanished ones included. Events about further queues are counted as invalid: `too_many_queues`."""
    max_collectors: Count = 1_000
    """Number of collectors whose heartbeats are followed. Those of further ones are counted as invalid: `too_many_collectors`."""
    max_messages_per_shard: Count = 10_000_000
    """Number of unsettled messages that each of `spark.shards` tracks. Events of further messages are counted as invalid:
    `too_many_messages`. So are those beyond 1 GiB of message ids, in which UUIDs do not count, or 256 MiB of names of groups."""
    tag_labels: tuple[str, ...] = ()
    """Tags of a queue that become labels of `queuewatch_queue_info` (`team` becomes `tag_team`), for alert routing."""
    slow_strategies: bool = True
    """Also report, without alerting, the verdicts of the broker's own slow-consumer strategies."""
    slow_strategy_params: StrategyOverrides = Field(default_factory=StrategyOverrides)
    thresholds: ThresholdOverrides = Field(default_factory=ThresholdOverrides)

    @model_validator(mode="after")
    def _coverage_band(self) -> Judging:
        check_together(replace(Thresholds(), **_given(self.thresholds)))
        return self


def check_together(merged: Thresholds, key: str = "thresholds") -> None:
    """Raise `ValueError` if thresholds, each of them allowed, cannot apply to one queue."""
    if merged.coverage_low_ratio >= merged.coverage_high_ratio:
        raise ValueError(f"{key}: coverage_low_ratio must be below coverage_high_ratio")


def settings_of(
    judging: Judging,
    queues: tuple[QueueOverrides, ...],
    fold: tuple[FoldedQueues, ...] = (),
    *,
    now_is_event_time: bool = False,
) -> Settings:
    """Return the settings of the core and the judge."""
    same = {f.name for f in fields(Settings)} & set(Judging.model_fields) - {"slow_strategy_params"}
    return Settings(
        lateness_ms=round(judging.lateness_s * 1000),
        skew_allowance_ms=round(judging.skew_allowance_s * 1000),
        forget_queue_after_ms=round(judging.forget_queue_after_s * 1000),
        now_is_event_time=now_is_event_time,
        defaults=replace(Thresholds(), **_given(judging.thresholds)),
        slow_strategy_params=_given(judging.slow_strategy_params),
        rules=tuple(queue.rule() for queue in queues),
        folds=tuple(one.rule() for one in fold),
        **{name: getattr(judging, name) for name in same},
    )


def _given(overrides: Section) -> Mapping[str, Any]:
    return overrides.model_dump(exclude_none=True)
