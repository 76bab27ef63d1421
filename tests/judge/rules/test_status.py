"""The status of a queue and its time to drain, without thresholds, from a window of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streaming.core.settings import QueueRule, Settings
from tests.core.driving import T0, event
from tests.judge.driving import Step, in_steps, judged

Events = list[dict[str, Any]]
COUNTS = {"visible": 50, "in_flight": 0, "delayed": 0}


def sent(n: int, every_ms: int = 100) -> Events:
    """Messages that enter from time 0 on."""
    return [event("sent", i * every_ms, message_id=f"m{i}") for i in range(n)]


def worked(n: int, from_ms: int, every_ms: int, *, finish: bool = True) -> Events:
    """One message after the other received, and deleted a second later."""
    out = []
    for i in range(n):
        at = from_ms + i * every_ms
        out.append(event("received", at, message_id=f"m{i}", receive_count=1))
        if finish:
            out.append(event("deleted", at + 1_000, message_id=f"m{i}"))
    return out


def statuses(events: Events, every_s: int, until_s: int) -> list[str]:
    """The status of the queue at each evaluation."""
    return [s.queues[0].status for s in judged(in_steps(events, every_s, until_s)).snapshots]


@pytest.mark.parametrize(("every_s", "until_s"), [(30, 900), (60, 1_200), (300, 2_400), (1_200, 3_600)])
@pytest.mark.parametrize(
    ("events", "status"),
    [
        (sent(50), "stopped"),
        (sent(50) + worked(40, 60_000, 90_000, finish=False), "stalled"),
        (sent(720, 5_000) + worked(300, 60_000, 12_000), "lagging"),
        (sent(50) + worked(50, 1_000, 1_000), "ok"),
    ],
    ids=["nobody receives", "nobody finishes", "they do not keep up", "all done"],
)
def test_status_whatever_the_rhythm_of_judging(events: Events, status: str, every_s: int, until_s: int) -> None:
    """Judged often or rarely the status is the same, and it persists."""
    said = statuses(events, every_s, until_s)
    assert set(said[len(said) * 2 // 3 :]) == {status}


@pytest.mark.parametrize("sent_until_s", [1_800, 600], ids=["others are sent all the while", "nothing is sent any more"])
def test_a_queue_whose_messages_expire_is_stopped(sent_until_s: int) -> None:
    """Consumers are gone after a minute; ten minutes later the first messages expire. That is no work."""
    retention = event("queue_state", 0, attributes={"retention_s": 600})
    run = judged(in_steps([retention, *sent(sent_until_s // 5, 5_000), *worked(12, 1_000, 5_000)], 30, 1_150))
    assert {s.queues[0].status for s in run.snapshots[13:]} == {"stopped"}
    assert "QueueLagging" not in {signal for _, signal, _, _ in run.changes_seen()}
    assert run.firing("QueueStalled")


def polled_with_sends(until_s: int, sent_until_s: int) -> Events:
    """A message a second, reported by its producer only; the broker counts fifty at every poll."""
    polls = [event("queue_state", at_s * 1_000, attributes=COUNTS) for at_s in range(0, until_s, 30)]
    return sorted([*sent(sent_until_s, 1_000), *polls], key=lambda e: int(e["at"]))


def test_a_counted_backlog_that_grows_by_less_than_is_sent_is_ok() -> None:
    """Messages leave, as the sends show a minute and a half later, since counts may be as old: it never looks stopped."""
    assert set(statuses(polled_with_sends(1_200, 1_200), 10, 1_200)) == {"ok"}


@pytest.mark.simulation
@pytest.mark.parametrize("restart", [False, True])
def test_a_counted_backlog_is_stopped_once_the_sends_show_no_consumer_for_long_enough(restart: bool) -> None:
    """Nothing is sent after ten minutes: the last sign that messages left is one of 510 s. It is judged when that is due."""
    run = judged(in_steps(polled_with_sends(1_200, 600), 10, 1_200), restart=restart)
    stopped = [(s.at_ms - T0) // 1_000 for s in run.snapshots if s.queues[0].status == "stopped"]
    assert stopped == list(range(510 + 240, 1_201, 10))


def test_a_counted_queue_has_stopped_once_its_last_failed_receive_is_long_ago() -> None:
    """A message failed after the last one was finished. QueueStalled said that nobody receives, and the status that they do."""
    failed = [event("received", at_s * 1_000, message_id="p", receive_count=i + 1) for i, at_s in enumerate((60, 90, 120, 150))]
    counted = COUNTS | {"visible": 1, "visibility_timeout_s": 10}
    polls = [event("queue_state", at_s * 1_000, attributes=counted) for at_s in range(10, 1_200, 30)]
    run = judged(in_steps(sorted([*worked(20, 11_000, 1_000), *failed, *polls], key=lambda e: int(e["at"])), 10, 1_200))
    assert run.snapshots[-1].queues[0].basis == "consumers"
    assert run.firing("QueueStalled")[-1].evidence["reason"] == "no_receives"
    assert run.snapshots[-1].queues[0].status == "stopped"


def read_late(events: Events, delays_ms: Sequence[int]) -> list[str]:
    """The status at each evaluation of `steps_read_late`."""
    return [s.queues[0].status for s in judged(steps_read_late(events, delays_ms), Settings()).snapshots if s.queues]


def steps_read_late(events: Events, delays_ms: Sequence[int]) -> list[Step]:
    """Steps ten seconds apart: each reads what happened until its delay before."""
    steps: list[Step] = []
    read = T0 - 1
    for i, delay_ms in enumerate(delays_ms):
        until = T0 + i * 10_000 - delay_ms
        steps.append((i * 10_000, [e for e in events if read < e["at"] <= until]))
        read = max(read, until)
    return steps


LATER_AND_LATER = [min(i, 60) * 1_000 for i in range(90)]


@pytest.mark.simulation
def test_a_queue_does_not_lag_because_its_events_are_read_later_and_later() -> None:
    """Each message waits for a minute; while the reading falls behind they seem to wait for up to two."""
    events = sent(180, 5_000) + worked(180, 60_000, 5_000)
    assert set(read_late(events, LATER_AND_LATER)) == {"ok"}


@pytest.mark.simulation
def test_the_forecast_of_a_lagging_queue_does_not_grow_because_its_events_are_read_later() -> None:
    """Five messages arrive while two leave: the age of the oldest grows by 0.58 s a second."""
    events = sent(180, 5_000) + worked(40, 60_000, 12_000)
    growth = {}
    for name, delays in (("late", LATER_AND_LATER[:56]), ("on time", [0] * 56)):
        (found,) = judged(steps_read_late(events, delays), Settings()).firing("QueueLagging")
        growth[name] = found.evidence["age_growth"]
    assert growth["late"] == pytest.approx(growth["on time"], abs=0.03)


@pytest.mark.simulation
def test_a_queue_lags_whenever_its_events_are_read() -> None:
    """Also when nothing is read for as long as nothing happens, every half minute."""
    events = sent(180, 5_000) + worked(30, 60_000, 30_000)
    for delays in (LATER_AND_LATER, [60_000] * 90, [0] * 90):
        assert set(read_late(events, delays)[-30:]) == {"lagging"}


def test_a_backlog_that_shrinks_is_not_lagging() -> None:
    """The oldest message grows older nevertheless."""
    said = statuses(sent(200) + worked(200, 30_000, 4_000), 30, 800)
    assert set(said[12:]) == {"ok"}


@pytest.mark.parametrize(
    ("attributes", "status"),
    [(COUNTS, "stale"), ({"visibility_timeout_s": 30}, "stopped")],
    ids=["its poller fell silent", "its settings were reported once"],
)
def test_stale_is_when_who_counts_falls_silent(attributes: dict[str, Any], status: str) -> None:
    """Settings reported once promise no counts; counts do."""
    events = [event("queue_state", 0, attributes=attributes), *sent(5)]
    assert statuses(events, 10, 400)[-1] == status


@pytest.mark.simulation
@pytest.mark.parametrize("works", [True, False], ids=["its consumers go on", "they stop"])
@pytest.mark.parametrize("every", [1, 2, 150], ids=["all reported", "half of them", "only sends"])
def test_nothing_is_ok_beside_consumers_that_may_be_dead_once_counts_have_ended(every: int, works: bool) -> None:
    """Five minutes after the last count, only what was received or settled since shows that a queue is well."""
    events = [event("sent", 8_000 * n, message_id=f"m{n}") for n in range(150)]
    for n in range(every, 150 if works else 50, every):
        about = {"message_id": f"m{n}", "consumer": "c"}
        events += [event("received", 8_000 * n + 1_000, **about), event("deleted", 8_000 * n + 2_000, **about)]
    busy = {"visible": 3, "in_flight": 2, "delayed": 0, "visibility_timeout_s": 30}
    events += [event("queue_state", 1_000 * at_s, attributes=busy) for at_s in range(0, 400, 30)]
    said = statuses(sorted(events, key=lambda e: int(e["at"])), 10, 1_200)
    assert set(said[1:69]) == {"ok"}
    assert set(said[71:]) == ({"ok"} if works and every < 150 else {"unknown"})


@pytest.mark.parametrize(("limit_s", "status"), [(300.0, "ok"), (60.0, "stale")])
def test_the_pattern_of_a_queue_says_when_it_is_stale_but_not_its_collector(limit_s: float, status: str) -> None:
    """A collector belongs to no queue: TelemetryStale has the time that applies to all."""
    rule = QueueRule("*", thresholds={"telemetry_stale_s": limit_s})
    events = [event("queue_state", 0, attributes=COUNTS), *sent(5), event("heartbeat", 0, consumer="c")]
    found = judged(in_steps(events, 10, 200), Settings(now_is_event_time=True, rules=(rule,)))
    assert found.snapshots[-1].queues[0].status == status
    fired = [at_ms for at_ms, signal, _, _ in found.changes_seen() if signal == "TelemetryStale"]
    assert fired == [120_000]


def drains(events: Sequence[dict[str, Any]], until_s: int) -> dict[int, float | None]:
    """Time to drain by second."""
    made = in_steps(events, 10, until_s)
    return {t // 1000: s.queues[0].time_to_drain_s for (t, _), s in zip(made, judged(made).snapshots, strict=True)}


@pytest.mark.simulation
def test_time_to_drain_is_published_soon_and_only_while_draining() -> None:
    """It appears a minute after the backlog began to shrink, is exact at a steady rate, and goes when it is empty or grows."""
    left = drains(sent(150) + worked(150, 30_000, 4_000), 700)
    assert [t for t, s in left.items() if s is not None] == list(range(90, 630, 10))
    assert left[400] == pytest.approx(630 - 400, rel=0.03)
    assert set(drains(sent(100, 4_000), 400).values()) == {None}


@pytest.mark.simulation
def test_a_backlog_that_goes_up_and_down_is_not_draining() -> None:
    """With ten in and ten out every half minute, the backlog must not be reported as draining."""
    events = sent(10)
    for n in range(200):
        about, at = {"message_id": f"more{n}"}, n // 10 * 30_000
        events += [event("sent", at, **about), event("received", at + 12_000, **about), event("deleted", at + 15_000, **about)]
    assert set(drains(events, 580).values()) == {None}
