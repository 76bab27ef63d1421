"""QueueLagging fires when the forecast passes the queue's own limit, and names what changed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from lab.harness import run
from lab.scenarios.matrix import one_consumer_dead, poison
from lab.telemetry import INSTRUMENTATIONS, seen
from streaming.core.settings import QueueRule, Settings
from streaming.judge.findings.signals import Finding
from tests.contract.replaying import ev
from tests.contract.test_incidents import flow
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
QUEUE = ev("queue_state", 0, attributes={"visibility_timeout_s": 30})
DIED_S = 600
QUIET_UNTIL_S = DIED_S + 590
"""Ten minutes after the worker's death its message is visible again."""


def lagging(events: Events, until_s: int, settings: Settings | None = None) -> tuple[list[float], list[Finding]]:
    """Return when QueueLagging fired, in seconds, and its summary then."""
    found = judged(in_steps(sorted([QUEUE, *events], key=lambda e: e["at"]), 15, until_s), settings)
    fired = [c for c in found.changes if c.finding.key.signal == "QueueLagging" and c.status == "firing"]
    return [(c.at_ms - ev("x", 0)["at"]) / 1000 for c in fired], [c.finding for c in fired]


def one_of_two_dies(work_s: float) -> Events:
    """A message every two seconds for two workers; the second dies after ten minutes."""
    return flow(DIED_S, 2, work_s, 2) + flow(900, 2, work_s, 1, DIED_S, 1_000)


def test_one_of_two_consumers_dead_is_announced_when_the_forecast_passes_the_limit() -> None:
    """Work takes 3.6 s, a message comes every 2 s: the age grows by 0.44 s per second and passes 15 min within half an hour."""
    times, (finding, *_) = lagging(one_of_two_dies(3.6), DIED_S + 900)
    assert DIED_S + 120 < times[0] <= DIED_S + 540
    evidence = finding.evidence
    assert evidence["passes_limit_in_s"] <= 1_800
    assert evidence["silent_consumers"] == "w1"
    assert "Consumer w1 has finished nothing for" in evidence["summary"]


def test_consumers_that_nobody_replaces_are_looked_at_farther_ahead() -> None:
    """Work takes 2.5 s: the age grows by 0.2 s per second, too slowly for the usual half an hour, and passes within two hours."""
    times, (finding, *_) = lagging(one_of_two_dies(2.5), QUIET_UNTIL_S)
    assert DIED_S + 300 < times[0] <= DIED_S + 540
    assert 1_800 < finding.evidence["passes_limit_in_s"] <= 7_200
    assert (finding.evidence["silent_consumers"], finding.blamed) == ("w1", ("w1",))
    usual = Settings(now_is_event_time=True, rules=(QueueRule("q", {"lag_forecast_lost_s": 1_800}),))
    assert lagging(one_of_two_dies(2.5), QUIET_UNTIL_S, usual) == ([], [])


def test_consumers_are_not_silent_while_their_work_takes_that_long() -> None:
    """Four workers whose messages take five minutes each fall behind: that one finished nothing for four is no cause."""
    times, findings = lagging(flow(4_800, 62, 300, 4), 4_800)
    assert times
    assert not any("silent_consumers" in finding.evidence for finding in findings)


def renamed(events: Events, late_by_s: float) -> Events:
    """Let the worker that is left go on under another name from some time after the other's death."""
    return [{**e, "consumer": "w0-new"} if e["at"] > ev("x", DIED_S + late_by_s)["at"] and "consumer" in e else e for e in events]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(renamed(one_of_two_dies(2.5), 5), id="a deploy gave the consumers that work new names"),
        pytest.param(flow(DIED_S, 3, 2.5, 2) + flow(900, 2, 2.5, 1, DIED_S, 1_000), id="more comes than before"),
        pytest.param(flow(DIED_S, 2.5, 2.4, 2) + flow(900, 2.1, 2.5, 1, DIED_S, 1_000), id="as much leaves as before"),
    ],
)
def test_a_silent_consumer_is_no_reason_to_look_farther_ahead(events: Events) -> None:
    """It was replaced, or the backlog has other causes: the usual half an hour applies."""
    assert lagging(events, QUIET_UNTIL_S) == ([], [])


def test_consumers_that_a_deploy_replaced_are_not_the_cause() -> None:
    """Both workers get new names, and work a little slower from then on: those of before finish nothing any more."""
    after = [{**e, "consumer": f"{e['consumer']}-new"} if "consumer" in e else e for e in flow(900, 2, 4.6, 2, DIED_S, 1_000)]
    times, findings = lagging(flow(DIED_S, 2, 3.6, 2) + after, DIED_S + 900)
    assert times
    assert not any("silent_consumers" in finding.evidence or finding.blamed for finding in findings)


def test_a_jumping_age_ends_neither_the_status_nor_the_signal() -> None:
    """A standard queue is received in no order: the age of the oldest visible message jumps, and the backlog grows throughout."""
    found = run(seen(one_consumer_dead("standard", 1), INSTRUMENTATIONS["full"]), trigger_ms=10_000)
    (fired,) = found.fired("QueueLagging")
    statuses = found.chosen("queue_status", "orders")
    assert {status for at, status in statuses.items() if at >= fired["at"]} == {"lagging"}
    assert [s["status"] for s in found.signals if s["signal"] == "QueueLagging"] == ["firing"]


@pytest.mark.parametrize("telemetry", ["consumers", "sample50"])
def test_a_lower_bound_that_is_absent_for_a_moment_does_not_end_the_signal(telemetry: str) -> None:
    """Where not everything is reported, age and status rest on counts, which come twice a minute and are not exact."""
    found = run(seen(one_consumer_dead("fifo", 1), INSTRUMENTATIONS[telemetry]))
    assert len(found.fired("QueueLagging")) == 1


def test_a_queue_that_falls_behind_by_little_is_not_announced_yet() -> None:
    """A tenth more than one worker can process: it takes hours to reach the limit."""
    assert lagging(one_of_two_dies(2.2), QUIET_UNTIL_S) == ([], [])


@pytest.mark.parametrize(("pattern", "fires"), [("q", True), ("other-*", False)], ids=["its own limit", "another queue's"])
def test_the_limit_is_set_per_queue_pattern(pattern: str, fires: bool) -> None:
    """The same queue with an objective of two minutes."""
    rule = QueueRule(pattern, {"lag_limit_s": 120})
    times, found = lagging(one_of_two_dies(2.2), QUIET_UNTIL_S, Settings(now_is_event_time=True, rules=(rule,)))
    assert bool(times) is fires
    assert {f.evidence["limit_s"] for f in found} <= {120}


def test_an_old_message_that_comes_back_is_no_growth() -> None:
    """The second worker's message is ten minutes old when its window ends: the age jumps, but the rates are unchanged."""
    times, _ = lagging(one_of_two_dies(2.2), QUIET_UNTIL_S + 60)
    assert times == []


SENT_UNTIL_S = 1_800


def falls_behind(until_s: int) -> tuple[list[tuple[float, str]], list[str]]:
    """Return the changes of QueueLagging, and the statuses, of a queue that falls behind for half an hour.

    A message comes every two seconds and its worker needs 3.6 s for each; the oldest is only received after 25 minutes.
    """
    events = [QUEUE, ev("sent", 0, message_id="old")]
    for i in range(SENT_UNTIL_S // 2):
        about, begin = {"message_id": f"m{i}"}, 3.6 * i + 1
        events += [ev("sent", 2 * i, **about), ev("received", begin, receive_count=1, consumer="w", **about)]
        events.append(ev("deleted", begin + 3.5, consumer="w", **about))
    events += [ev(what, at, consumer="v", message_id="old") for what, at in (("received", 1_500), ("deleted", 1_502))]
    settings = Settings(now_is_event_time=True, rules=(QueueRule("q", {"lag_limit_s": 300}),))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 30, until_s), settings)
    changes = [(at / 1000, status) for at, signal, status, _ in found.changes_seen() if signal == "QueueLagging"]
    return changes, [s.queues[0].status for s in found.snapshots]


def test_a_queue_that_falls_behind_is_announced_once_and_until_its_backlog_shrinks() -> None:
    """The age of the oldest drops by a quarter of an hour when it is finally received, but the backlog keeps growing."""
    changes, statuses = falls_behind(2_250)
    assert [status for _, status in changes] == ["firing", "resolved"]
    assert SENT_UNTIL_S < changes[1][0] <= SENT_UNTIL_S + 300
    assert set(statuses[20 : SENT_UNTIL_S // 30]) == {"lagging"}


def test_a_queue_with_a_stuck_group_is_not_announced_again_and_again() -> None:
    """The few messages behind the poison head of a group grow in number only now and then: that is no recovery in between."""
    outcome = run(seen(poison("fifo", 1), INSTRUMENTATIONS["full"]), trigger_ms=10_000)
    changes = [(line["at"], line["status"]) for line in outcome.signals if line["signal"] == "QueueLagging"]
    assert all(later - earlier >= 120_000 for (earlier, _), (later, _) in pairwise(changes))


def test_a_stuck_group_is_the_cause_and_not_work_that_hardly_matters() -> None:
    """Work takes twice as long as before, but that is 25 ms of each second; nearly all that wait are behind one head."""
    attributes = {"kind": "fifo", "visibility_timeout_s": 20}
    events, blocked = [ev("queue_state", 0, attributes=attributes)], 600
    for s in range(1_200):
        for g in range(4):
            about: dict[str, Any] = {"message_id": f"m{s}-{g}", "group": f"g{g}", "sequence": f"{s}{g}", "ordered": True}
            events.append(ev("sent", s + g / 5, **about))
            if g == 3 and s >= blocked:
                continue
            begin, work_s = s + g / 5 + 0.3, 0.012 if s < blocked else 0.025
            events.append(ev("received", begin, consumer=f"w{g % 2}", receive_count=1, **about))
            events.append(ev("deleted", begin + work_s, message_id=about["message_id"]))
    head = {"message_id": f"m{blocked}-3", "group": "g3", "consumer": "hung"}
    events.append(ev("received", blocked + 1.2, receive_count=1, invisible_until=events[0]["at"] + (blocked + 21) * 1000, **head))
    for s in range(blocked + 10, 1_200, 10):
        events.append(ev("extended", s, invisible_until=events[0]["at"] + (s + 20) * 1000, **head))
    _, (finding, *_) = lagging(events, 1_200)
    waiting = finding.evidence["visible"]
    assert finding.evidence["cause"] == f"group g3 is stuck and holds {waiting - 1} of {waiting} waiting messages"
    assert "processing_s" not in finding.evidence


def test_a_small_stuck_group_is_not_the_cause_of_an_overload_though_its_head_is_the_oldest() -> None:
    """Two of two hundred messages are stuck; the others wait because each takes six times as long as before."""
    events, free_s = [ev("queue_state", 0, attributes={"kind": "fifo", "visibility_timeout_s": 30})], 0.0
    for s in range(1_000):
        about: dict[str, Any] = {"message_id": f"m{s}", "group": f"g{s % 40}", "sequence": str(s), "ordered": True}
        begin, work_s = max(s + 0.1, free_s), 0.4 if s < 600 else 2.5
        free_s = begin + work_s
        events += [ev("sent", s, **about), ev("received", begin, receive_count=1, consumer="w", **about)]
        events.append(ev("deleted", free_s, consumer="w", message_id=about["message_id"]))
    for n in range(2):
        events.append(ev("sent", 590 + n, message_id=f"bad{n}", group="bad", sequence=str(10_000 + n), ordered=True))
    for count, at in enumerate(range(592, 1_300, 31), start=1):
        events.append(ev("received", at, message_id="bad0", receive_count=count, consumer="v"))
        events.append(ev("released", at + 0.9, message_id="bad0"))
    _, (finding, *_) = lagging([e for e in events if e["at"] <= events[0]["at"] + 1_300_000], 1_300)
    assert finding.evidence["cause"].startswith("processing takes 2.5 s")


@pytest.mark.parametrize(
    ("before_s", "after_s", "named"),
    [(0.112, 0.252, True), (0.02, 0.045, False)],
    ids=["a tenth of their time", "next to nothing of their time"],
)
def test_slower_work_is_the_cause_where_consumers_are_busy(before_s: float, after_s: float, named: bool) -> None:
    """A message comes every two seconds; later the only consumer fetches one in 2.5 s. The evidence has milliseconds."""
    events = []
    for i in range(1_000):
        about = {"message_id": f"m{i}", "consumer": "w"}
        begin = 2 * i + 0.5 if i < 300 else 600 + 2.5 * (i - 300) + 0.5
        events += [ev("sent", 2 * i, message_id=f"m{i}"), ev("received", begin, receive_count=1, **about)]
        events.append(ev("deleted", begin + (before_s if i < 300 else after_s), **about))
    rule = QueueRule("q", {"lag_limit_s": 300})
    _, (finding, *_) = lagging(events, 1_200, Settings(now_is_event_time=True, rules=(rule,)))
    assert finding.evidence.get("processing_s") == (after_s if named else None)
    assert ("processing" in finding.evidence.get("cause", "")) is named
