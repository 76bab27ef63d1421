"""queuewatch with its defaults: the notifications sent with the shipped Alertmanager configuration."""

from __future__ import annotations

from dataclasses import dataclass

from lab.detect.alarms import Alarm
from lab.detect.run import Run
from lab.notifications import Signal, every, reaching


@dataclass(frozen=True)
class Queuewatch:
    """Signals of at least warning severity that are neither folded nor inhibited."""

    name: str = "queuewatch"
    source: str = "this repository's defaults"

    def applies(self, run: Run) -> bool:
        """Everywhere."""
        return bool(run.recording.settings)

    def alarms(self, run: Run) -> list[Alarm]:
        return [_alarm(signal, ends_at) for signal, ends_at in reaching(run.signals)]


@dataclass(frozen=True)
class QueuewatchNaming:
    """The same, counting only signals that name the fault, whatever their severity."""

    name: str = "queuewatch, by the fault's name"
    source: str = "this repository's defaults"

    def applies(self, run: Run) -> bool:
        """It applies where there is a fault that a signal is meant to name."""
        return bool(run.recording.labels)

    def alarms(self, run: Run) -> list[Alarm]:
        expected = run.recording.labels[0].expected
        return [_alarm(s, ends) for s, ends in every(run.signals) if s["signal"] in expected and s.get("alerting") is not False]


def _alarm(signal: Signal, ends_at: int | None) -> Alarm:
    """Build an alarm that names the signal's subject and whatever its evidence names."""
    about = {signal.get("message_id"), signal.get("group"), signal.get("consumer")}
    about |= {value for value in signal["evidence"].values() if isinstance(value, str)}
    names = frozenset(name for name in about if name)
    return Alarm(
        from_ms=signal["at"],
        to_ms=ends_at,
        queue=signal["queue"],
        what=signal["signal"],
        names=names,
        pages=signal["severity"] == "critical",
        says_what=True,
        consumer=signal.get("consumer"),
    )
