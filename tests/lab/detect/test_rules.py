"""The other rules on artificial queues for which the right result is known."""

from __future__ import annotations

from typing import Any

import pytest

from lab.detect.alarms import Alarm
from lab.detect.rules.dead_letter_depth import DeadLetterDepth
from lab.detect.rules.depth_percentile import DepthPercentile, fitted, quiet_minutes
from lab.detect.rules.queuewatch import Queuewatch, QueuewatchNaming
from lab.detect.rules.slow_consumers import SlowConsumers
from lab.detect.rules.true_age import TrueAge
from lab.detect.run import Run
from lab.history import NEVER, Delivery, History, Outcome
from lab.recording import Label, Recording
from lab.report import Report, System, event
from lab.simulation import ms

SETTINGS: dict[str, dict[str, Any]] = {"q": {"dead_letter_queue": "dlq"}, "dlq": {}}


def run_of(history: History, duration_s: float = 1200, system: System = "aws_sqs", **more: Any) -> Run:
    """Return a finished run of a history."""
    history.freeze()
    recording = Recording(
        "made up", 1, duration_s, more.pop("reports", []), history, SETTINGS, more.pop("labels", []), system=system
    )
    return Run("made up", "standard", recording, **more)


def seconds(alarms: list[Alarm]) -> list[tuple[float, float | None]]:
    """Return begin and end of each alarm in seconds."""
    return [((a.from_ms - ms(0)) / 1000, None if a.to_ms is None else (a.to_ms - ms(0)) / 1000) for a in alarms]


def waiting(queue: str, *spans: tuple[float, float | None]) -> History:
    """One message per span, visible from the start of the span to its end."""
    history = History()
    for n, (begin, end) in enumerate(spans):
        history.of(queue).enter(f"m{n}", "visible", ms(begin), ms(begin))
        if end is not None:
            history.of(queue).leave(f"m{n}", "deleted", ms(end))
    history.of("q")
    history.of("dlq")
    return history


def test_a_dead_letter_is_seen_at_the_next_minute_but_never_between_two_samples() -> None:
    """If it is drained within a minute, the depth is zero at every sample."""
    rule = DeadLetterDepth()
    assert seconds(rule.alarms(run_of(waiting("dlq", (70, None))))) == [(120, None)]
    assert rule.alarms(run_of(waiting("dlq", (70, 110)))) == []


def test_the_true_age_fires_after_five_minutes_and_ends_with_the_message() -> None:
    """The scrape interval is 15 s, and the age must exceed the threshold."""
    assert seconds(TrueAge().alarms(run_of(waiting("q", (0, 400))))) == [(315, 405)]
    assert TrueAge().alarms(run_of(waiting("q", (0, 300)))) == []


def test_the_depth_threshold_is_learned_before_any_fault() -> None:
    """With 99 minutes at zero and one at ten, the 99th percentile is just above zero."""
    label = Label("f", "q", ms(600), None, ms(600))
    assert quiet_minutes(run_of(waiting("q", (30, 90), (600, None)), labels=[label])) == [0, 1] + [0] * 8
    assert fitted([0] * 99 + [10]) == pytest.approx(0.1)
    assert fitted([]) is None
    deep = run_of(waiting("q", (100, 700), (100, 700)), quiet_depth=1.0)
    assert seconds(DepthPercentile().alarms(deep)) == [(240, 840)], "three of five minutes to begin and to end"
    assert not DepthPercentile().applies(run_of(waiting("q")))


def activemq(prefetch: int, *, acknowledges_every_s: float | None, backlog: bool) -> Run:
    """A consumer that holds a full window from second 10 on."""
    history = waiting("q", *([(0, None)] if backlog else []))
    log = history.of("q")
    end = 1200.0
    step = end if acknowledges_every_s is None else acknowledges_every_s
    at = 10.0
    while at < end:
        outcome = "open" if acknowledges_every_s is None else "deleted"
        log.deliveries.append(Delivery("q", f"d{at}", "c", 1, ms(at), (1 << 62) if outcome == "open" else ms(at + step), outcome))  # type: ignore[arg-type]
        at += step
    detected = event("consumer_state", ms(0), "q", "activemq", consumer="c", attributes={"connected": True, "prefetch": prefetch})
    return run_of(history, system="activemq", reports=[Report("consumer", "c", None, detected)])


def test_the_ack_strategy_aborts_a_hung_consumer_and_one_with_long_messages() -> None:
    """A broker with default settings aborted it after 33 s. It also aborts a healthy consumer that takes 70 s per message."""
    rule = SlowConsumers("ack")
    (hung,) = rule.alarms(activemq(100, acknowledges_every_s=None, backlog=False))
    assert 30 <= (hung.from_ms - ms(10)) / 1000 <= 90
    assert hung.names == {"c"}
    assert rule.alarms(activemq(100, acknowledges_every_s=70, backlog=False)) != []
    assert rule.alarms(activemq(100, acknowledges_every_s=5, backlog=False)) == []


def acks(outcome: Outcome, every_s: float, *states: tuple[float, bool]) -> Run:
    """A consumer that ends a delivery every so often for ten minutes, and whose state is reported at these times."""
    history = waiting("q")
    for at in range(10, 610, round(every_s)):
        history.of("q").deliveries.append(Delivery("q", f"d{at}", "c", 1, ms(at), ms(at + every_s), outcome))
    history.of("q").deliveries.append(Delivery("q", "last", "c", 1, ms(610), NEVER, "open"))
    reports = []
    for at_s, connected in states:
        about = {"connected": connected, "prefetch": 100}
        state = event("consumer_state", ms(at_s), "q", "activemq", consumer="c", attributes=about)
        reports.append(Report("consumer", "c", None, state))
    return run_of(history, system="activemq", reports=reports)


def test_a_refusal_is_an_acknowledgement_for_the_broker() -> None:
    """A consumer that refuses a message every five seconds is not slow; it is once it holds one for half a minute."""
    (hung,) = SlowConsumers("ack").alarms(acks("dropped", 5, (0, True)))
    assert 640 <= (hung.from_ms - ms(0)) / 1000 <= 700


def test_a_consumer_that_hangs_from_its_start_is_slow_though_its_state_is_reported_again_and_again() -> None:
    """The time of its connection counts, not of the latest report; and no acknowledgement of its earlier connection."""
    again = [(float(at), True) for at in range(0, 1200, 30)]
    (hung,) = SlowConsumers("ack").alarms(acks("open", 1200, *again))
    assert 40 <= (hung.from_ms - ms(0)) / 1000 <= 100
    later = [(0.0, True), (608.0, False), *((float(at), True) for at in range(609, 1200, 30))]
    (hung,) = SlowConsumers("ack").alarms(acks("deleted", 5, *later))
    assert 640 <= (hung.from_ms - ms(0)) / 1000 <= 700


def test_the_prefetch_strategy_only_looks_at_full_windows() -> None:
    """Measured: under load a healthy consumer with prefetch 1 almost always has a full window; a hung one with room has not."""
    rule = SlowConsumers("prefetch")
    assert rule.alarms(activemq(1, acknowledges_every_s=1, backlog=True)) != []
    assert rule.alarms(activemq(100, acknowledges_every_s=None, backlog=True)) == []


def signal(name: str, at_s: float, status: str = "firing", severity: str = "warning", **more: Any) -> dict[str, Any]:
    """A signal line."""
    about = {"system": "aws_sqs", "scope": "", "queue": "q", "severity": severity, "evidence": {"summary": "s"}}
    return {"signal": name, "at": ms(at_s), "status": status, **about, **more}


def test_queuewatch_is_judged_by_its_notifications() -> None:
    """Folded signals and info do not notify; the row by the fault's name counts any signal that names what is wrong."""
    signals = [
        signal("PoisonMessage", 60, message_id="m"),
        signal("PoisonMessage", 90, message_id="m2", folded="QueueFailing"),
        signal("QueueMisconfigured", 0, severity="info"),
        signal("QueueStalled", 300, severity="critical"),
        signal("QueueStalled", 400, "resolved", severity="critical"),
    ]
    label = Label("f", "q", ms(0), None, ms(0), expected=("QueueMisconfigured",))
    run = run_of(waiting("q"), signals=signals, labels=[label])
    detected = Queuewatch().alarms(run)
    assert [(a.what, a.pages) for a in detected] == [("PoisonMessage", False), ("QueueStalled", True)]
    assert seconds(detected) == [(60, None), (300, 400)]
    assert detected[0].names >= {"m"}
    assert [a.what for a in QueuewatchNaming().alarms(run)] == ["QueueMisconfigured"]
