"""Which signals would notify, by the shipped Alertmanager configuration."""

from __future__ import annotations

from typing import Any

from lab.notifications import announced, notifications, reaching, shipped_inhibitions


def signal(at_s: int, name: str, severity: str = "warning", status: str = "firing", **fields: Any) -> dict[str, Any]:
    """A signal line of queue `q`."""
    about = {"signal": name, "severity": severity, "status": status, "system": "aws_sqs", "scope": "s", "queue": "q"}
    return about | {"at": at_s * 1000} | fields


def names(signals: list[dict[str, Any]]) -> list[str]:
    """Return the names of the announced signals."""
    return [s["signal"] for s in announced(signals)]


def test_a_consequence_is_inhibited_while_its_cause_fires() -> None:
    """A stalled queue inhibits its stuck groups, but not those of another queue, and not before or after."""
    stalled = signal(100, "QueueStalled", "critical")
    over = signal(300, "QueueStalled", "critical", "resolved")
    assert shipped_inhibitions()
    assert names([stalled, signal(200, "GroupStuck", "critical", group="a"), over]) == ["QueueStalled"]
    assert names([stalled, signal(200, "GroupStuck", "critical", queue="other"), over]) == ["QueueStalled", "GroupStuck"]
    assert names([stalled, over, signal(400, "GroupStuck", "critical", group="a")]) == ["QueueStalled", "GroupStuck"]


def test_a_cause_within_the_group_wait_inhibits_too() -> None:
    """Alertmanager waits 15 s before it sends a group."""
    stuck = signal(90, "GroupStuck", "critical", group="a")
    assert names([stuck, signal(100, "QueueStalled", "critical")]) == ["QueueStalled"]
    assert names([stuck, signal(110, "QueueStalled", "critical")]) == ["GroupStuck", "QueueStalled"]


def test_folded_info_and_non_alerting_signals_notify_nobody() -> None:
    """Such signals are listed elsewhere."""
    signals = [
        signal(1, "PoisonMessage", message_id="a"),
        signal(2, "PoisonMessage", message_id="b", folded="QueueFailing"),
        signal(3, "QueueMisconfigured", "info"),
        signal(4, "SlowConsumer", alerting=False),
    ]
    assert [s["message_id"] for s in announced(signals)] == ["a"]


def test_a_signal_that_becomes_more_severe_is_another_alert() -> None:
    """The one with the severity before ends."""
    signals = [
        signal(1, "QueueLagging"),
        signal(100, "QueueLagging", "critical"),
        signal(200, "QueueLagging", "critical", "resolved"),
    ]
    seen = [(s["severity"], s["at"], ends_at) for s, ends_at in reaching(signals)]
    assert seen == [("warning", 1_000, 100_000), ("critical", 100_000, 200_000)]


def test_a_group_is_sent_after_its_wait_and_then_at_its_intervals() -> None:
    """Poison messages of one queue are sent at 15 s, at 75 s for those since then, and so on."""
    poison = [signal(at_s, "PoisonMessage", message_id=str(at_s)) for at_s in (0, 10, 20, 70, 200)]
    assert notifications(poison) == 3
    assert notifications([*poison, signal(5, "DeadLetterArrived")]) == 4


def test_what_is_only_shown_inhibits_nothing() -> None:
    """The rules do not alert on it, so Alertmanager never sees it."""
    shown = signal(90, "GroupStuck", "info", group="a", alerting=False)
    assert names([shown, signal(100, "SlowConsumer", consumer="w")]) == ["SlowConsumer"]
    assert names([{**shown, "severity": "critical", "alerting": True}, signal(100, "SlowConsumer", consumer="w")]) == [
        "GroupStuck"
    ]
