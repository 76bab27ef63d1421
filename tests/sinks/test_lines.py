"""The lines of replay and signal log: they have the contract's fields, and any JSON reader can parse them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sinks.lines import metric_line, signal_line, to_json
from streaming.judge.findings.signals import SignalChange
from streaming.judge.metrics import Sample
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, finding

POISON = finding(
    "PoisonMessage",
    "orders",
    "critical",
    NOW_MS - 44_000,
    "m1 was received 5 times.",
    message_id="m1",
    receive_count=5,
)


def test_a_signal_line_has_the_contracts_fields() -> None:
    """Fields such as the message id are present only if the signal has them."""
    assert signal_line(SignalChange(NOW_MS, "firing", POISON, "a1")) == {
        "at": NOW_MS,
        "kind": "signal",
        "signal": "PoisonMessage",
        "status": "firing",
        "severity": "critical",
        "system": "aws_sqs",
        "scope": "123456789012/eu-west-1",
        "queue": "orders",
        "message_id": "m1",
        "since": NOW_MS - 44_000,
        "announcement": "a1",
        "evidence": {"summary": "m1 was received 5 times.", "receive_count": 5},
    }


def test_a_signal_that_never_alerts_says_so() -> None:
    """A reader of the log may page on lines, so it must know which findings never alert."""
    assert signal_line(SignalChange(NOW_MS, "firing", replace(POISON, alerting=False), "a1"))["alerting"] is False


def test_group_consumer_and_part_are_distinguished() -> None:
    """Group, consumer and part each have a field of their own."""
    about = finding("GroupStuck", "q.fifo", "critical", NOW_MS, "stuck", group="g", consumer="c", part="p")
    line = signal_line(SignalChange(NOW_MS, "resolved", about, "a2"))
    assert (line["group"], line["consumer"], line["part"], line["status"]) == ("g", "c", "p", "resolved")
    assert "message_id" not in line


def test_a_metric_line_is_one_sample() -> None:
    """The line has the contract's five fields."""
    sample = Sample("queuewatch_poison_messages", {"queue": "orders"}, 2)
    assert metric_line(NOW_MS, sample) == {
        "at": NOW_MS,
        "kind": "metric",
        "name": "queuewatch_poison_messages",
        "labels": {"queue": "orders"},
        "value": 2,
    }


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_any_name_becomes_one_line_of_ascii(name: str) -> None:
    """The line has no newline, no lone surrogate and no terminal control character, and parses back to the same name."""
    text = to_json({"queue": name})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"queue": name}


def test_numbers_that_json_cannot_represent_become_null() -> None:
    """NaN and Infinity would make the line unreadable to most parsers; numpy numbers become plain numbers."""
    value = {"a": float("nan"), "b": [float("inf"), 1.5], "c": np.int64(7), "d": np.float64("nan")}
    assert json.loads(to_json(value)) == {"a": None, "b": [None, 1.5], "c": 7, "d": None}
