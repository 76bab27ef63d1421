"""Every setting of the core is configurable or is listed as one that must not be."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from pydantic import ValidationError

from streaming.config.tracking import Judging, ThresholdOverrides
from streaming.core.settings import QueueRule, Settings
from streaming.core.thresholds import Thresholds, accepted

OTHERWISE_NAMED = {
    "lateness_ms": "lateness_s",
    "skew_allowance_ms": "skew_allowance_s",
    "forget_queue_after_ms": "forget_queue_after_s",
    "defaults": "thresholds",
}
NOT_THE_USERS = {
    "now_is_event_time": "whether it is a replay says it",
    "ordered_queues": "a replay finds out; the user has queues[].ordered",
    "rules": "the section `queues`",
    "folds": "the section `fold`",
}


def test_every_setting_of_the_core_is_a_key_of_judge() -> None:
    """A new setting in the core must be considered here."""
    names = {f.name for f in fields(Settings)} - set(NOT_THE_USERS)
    assert {OTHERWISE_NAMED.get(name, name) for name in names} == set(Judging.model_fields)


def test_every_threshold_can_be_overridden() -> None:
    """The keys are generated from the core's own fields."""
    assert set(ThresholdOverrides.model_fields) == {f.name for f in fields(Thresholds)}


@pytest.mark.parametrize("name", [f.name for f in fields(Thresholds)])
def test_a_threshold_is_within_its_range(name: str) -> None:
    """The range includes the default. Beyond it a rule fails, or holds for everything; infinity would overflow."""
    allowed = accepted(name)
    assert allowed.includes(getattr(Thresholds(), name))
    kind = type(getattr(Thresholds(), name))
    for value in (kind(allowed.least), kind(allowed.most)):
        assert getattr(ThresholdOverrides(**{name: value}), name) == value
    for value in (allowed.least - 1, allowed.most + 1, 0 if allowed.least else -1, math.inf, math.nan):
        with pytest.raises(ValidationError):
            ThresholdOverrides(**{name: value})


def test_every_field_of_a_rule_is_a_key_of_queues() -> None:
    """The settings of a queue can be given by pattern."""
    from streaming.config.tracking import QueueOverrides

    assert set(QueueOverrides.model_fields) == {f.name for f in fields(QueueRule)}
