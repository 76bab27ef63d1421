"""The signal log: every change of every signal, once, in a file or a Kafka topic."""

from __future__ import annotations

from collections.abc import Iterable

from sinks.lines import signal_line, to_json
from sinks.records import Record
from streaming.judge.findings.signals import SignalChange


def signal_records(changes: Iterable[SignalChange]) -> list[Record]:
    """Return the lines of `signal_line`, each with its announcement as the key."""
    return [Record(change.announcement, to_json(signal_line(change))) for change in changes]
