"""Consumers on a schedule: the first pauses may page, then the schedule is known; consumers that die still page."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from streaming.core.thresholds import Thresholds
from tests.core.driving import T0, event
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

STEP_S = 30
"""Between two evaluations: a third of the time that the usual ten seconds take, and every limit here is a multiple of it."""


def traffic(until_s: int, works: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return a message every ten seconds, received and deleted at once while consumers work, or when they resume."""
    events = []
    for i, sent_s in enumerate(range(0, until_s, 10)):
        named = {"message_id": f"m{i}"}
        events.append(event("sent", 1000 * sent_s, **named))
        starts = [max(sent_s, begin_s) for begin_s, end_s in works if end_s > sent_s]
        if starts:
            at_ms = 1000 * min(starts) + 500 + i
            events.append(event("received", at_ms, receive_count=1, consumer="cron", **named))
            events.append(event("deleted", at_ms + 200, consumer="cron", **named))
    return sorted(events, key=lambda e: e["at"])


def stalls_at(said: Judged) -> list[int]:
    """Return when QueueStalled began to fire, in seconds."""
    return [(c.at_ms - T0) // 1000 for c in said.changes if c.finding.key.signal == "QueueStalled" and c.status == "firing"]


def test_a_schedule_is_learned_from_its_first_pause() -> None:
    """Three minutes of work in every fifteen."""
    works = [(begin, begin + 180) for begin in range(0, 7_200, 900)]
    times = stalls_at(judged(in_steps(traffic(7_200, works), STEP_S, 7_200)))
    assert times == [480], "once in the first pause, and never again"


def test_a_wait_before_the_first_settlement_is_a_pause_too() -> None:
    """The same schedule, first seen in the middle of a pause: once in that pause, and never again."""
    works = [(begin, begin + 180) for begin in range(720, 7_200, 900)]
    times = stalls_at(judged(in_steps(traffic(7_200, works), STEP_S, 7_200)))
    assert times == [300]


def test_after_a_first_wait_consumers_that_never_caught_up_page_as_ever() -> None:
    """They worked for five minutes and left a backlog: a fix that did not hold, not a schedule."""
    events = traffic(2_400, [(1_200, 1_500)])
    left_over = [event("sent", 1000 * i, message_id=f"left{i}") for i in range(50)]
    times = stalls_at(judged(in_steps(sorted([*events, *left_over], key=lambda e: e["at"]), STEP_S, 2_400)))
    assert len(times) == 2
    assert 1_500 + 290 <= times[1] <= 1_500 + 320


def test_after_a_first_wait_steady_consumers_page_as_ever() -> None:
    """They have worked for longer than the queue had waited for them."""
    times = stalls_at(judged(in_steps(traffic(2_400, [(600, 1_500)]), STEP_S, 2_400)))
    assert len(times) == 2
    assert 1_500 + 290 <= times[1] <= 1_500 + 320


def fifo(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events as those of a FIFO queue of twelve groups."""
    grouped = [{**e, "queue": "q.fifo", "group": f"g{int(e['message_id'][1:]) % 12}"} for e in events]
    return [event("queue_state", 0, queue="q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30}), *grouped]


def collapses(said: Judged) -> list[tuple[int, str, bool]]:
    """Return when ConcurrencyCollapsed began to fire, its severity and whether it is announced."""
    found = [c for c in said.changes if c.finding.key.signal == "ConcurrencyCollapsed" and c.status == "firing"]
    return [((c.at_ms - T0) // 1000, c.finding.severity, c.finding.announced) for c in found]


def test_in_a_pause_of_the_schedule_no_concurrency_has_collapsed() -> None:
    """Groups wait because nobody is there: shown in each pause once the schedule is known, never announced."""
    works = [(begin, begin + 180) for begin in range(0, 7_200, 900)]
    found = [c for c in collapses(judged(in_steps(fifo(traffic(7_200, works)), STEP_S, 7_200))) if c[0] > 900]
    assert len(found) >= 6
    assert {c[1:] for c in found} == {("info", False)}


def test_consumers_that_return_from_a_pause_one_group_at_a_time_are_announced() -> None:
    """Five minutes after they returned, not at once: the pause does not count."""
    works = [(begin, begin + 180) for begin in range(0, 2_700, 900)]
    events = traffic(2_700, works)
    returned_s = 2_700
    waiting = [e["message_id"] for e in events if e["type"] == "sent" and e["at"] >= T0 + 1_980_000]
    one = {"message_id": waiting[0], "consumer": "cron"}
    events = [e for e in events if e["type"] == "sent" or e["at"] < T0 + 1_985_000]
    events.append(event("received", 1000 * returned_s, receive_count=1, invisible_until=T0 + 4_000_000, **one))
    found = collapses(judged(in_steps(fifo(sorted(events, key=lambda e: e["at"])), STEP_S, 3_300)))
    announced = [at_s for at_s, severity, is_announced in found if is_announced and severity == "warning" and at_s > 900]
    assert announced == [returned_s + 300]


def test_delayed_messages_are_no_backlog_of_groups() -> None:
    """Twelve groups, of which every message is delayed: nothing could be in flight."""
    later = T0 + 900_000
    events = [event("sent", 1000 * i, message_id=f"m{i}", visible_at=later) for i in range(60)]
    assert collapses(judged(in_steps(fifo(events), STEP_S, 800))) == []


def test_consumers_that_stay_away_longer_than_their_schedule_page() -> None:
    """It fires a quarter of the usual pause later."""
    works = [(begin, begin + 180) for begin in range(0, 3_600, 900)]
    times = stalls_at(judged(in_steps(traffic(6_000, works), STEP_S, 6_000)))
    died_s = 2_700 + 180
    assert times[0] == 480
    assert len(times) == 2
    assert died_s + 720 < times[1] <= died_s + 720 * 1.25 + 90


def test_a_stall_is_looked_at_in_every_step_of_a_pause(evaluated: list[tuple[int, str]]) -> None:
    """Also where the collector is silent: how long a pause of the schedule may last follows from samples that thin out."""
    works = [(begin, begin + 180) for begin in range(0, 2_700, 900)]
    settings = event("queue_state", 0, attributes={"visible": 0, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30})
    sent = [e for e in traffic(2_700, works) if e["at"] < T0 + 2_000_000]
    nothing_silent = Settings(now_is_event_time=True, defaults=Thresholds(silent_messages=1_000))
    judged(in_steps([settings, *sent], STEP_S, 2_700), nothing_silent)
    assert [at // 1_000 for at, _ in evaluated if at >= 2_400_000] == list(range(2_400, 2_701, STEP_S))


def test_one_long_pause_of_a_busy_queue_is_no_schedule() -> None:
    """An incident of twenty minutes must not hide the next one."""
    works = [(0, 3_600), (4_800, 6_600)]
    times = stalls_at(judged(in_steps(traffic(7_800, works), STEP_S, 7_800)))
    assert len(times) == 2
    assert 6_600 + 290 <= times[1] <= 6_600 + 320


@pytest.mark.parametrize(
    ("works", "until_s"),
    [
        pytest.param([(0, 300), (2_700, 3_900)], 5_400, id="40 minutes, and again after 20"),
        pytest.param([(600, 900)], 1_800, id="ten minutes, and again after five"),
    ],
)
@pytest.mark.parametrize("counted", [False, True], ids=["messages", "counts"])
def test_an_outage_after_which_consumers_go_on_working_is_no_schedule(
    works: list[tuple[int, int]], until_s: int, counted: bool
) -> None:
    """Consumers paused for two thirds of the time since then, but only once: the next outage pages as soon as the first did."""
    events = only_counted(until_s, works) if counted else traffic(until_s, works)
    times = stalls_at(judged(in_steps(events, STEP_S, until_s)))
    assert len(times) == 2
    assert works[-1][1] + 240 <= times[1] <= works[-1][1] + 360


def test_an_hourly_schedule_of_five_minutes_is_learned_from_its_first_pause() -> None:
    """The samples of its pause are minutes apart by the end of the next one."""
    works = [(begin, begin + 300) for begin in range(0, 10_800, 3_600)]
    assert stalls_at(judged(in_steps(traffic(10_800, works), STEP_S, 10_800))) == [600]


def only_counted(until_s: int, works: list[tuple[int, int]], *, paused: tuple[int, int] = (0, 0)) -> list[dict[str, Any]]:
    """Return the collector's polls of the same queue, every 30 s; each message is worked on for 20 s.

    `paused`: when the queue is paused by its operators.
    """
    events = []
    for at_s in range(0, until_s, 30):
        waiting = in_flight = 0
        for sent_s in range(0, at_s + 1, 10):
            starts = [max(sent_s, begin_s) for begin_s, end_s in works if end_s > sent_s]
            received_s = min(starts, default=until_s)
            waiting += at_s < received_s
            in_flight += received_s <= at_s < received_s + 20
        counts = {"visible": waiting, "in_flight": in_flight, "delayed": 0, "visibility_timeout_s": 30}
        events.append(event("queue_state", 1000 * at_s, attributes=counts | {"paused": paused[0] <= at_s < paused[1]}))
    return events


def test_a_schedule_is_learned_from_the_brokers_counts() -> None:
    """Where only the collector reports: once in the first pause, and again only when the consumers stay away for longer."""
    works = [(begin, begin + 180) for begin in range(720, 7_200, 900)]
    times = stalls_at(judged(in_steps(only_counted(9_000, works), STEP_S, 9_000)))
    assert len(times) == 2
    assert 240 <= times[0] <= 300
    stopped_at = works[-1][1]
    assert stopped_at + 1.25 * 720 <= times[1] <= stopped_at + 1.25 * 720 + 150


def test_a_schedule_of_a_few_minutes_is_still_known_after_hours() -> None:
    """A minute of work in every ten, with everything reported: samples of two hours ago are six minutes apart."""
    works = [(begin, begin + 60) for begin in range(600, 14_400, 600)]
    events = [*traffic(14_400, works), *only_counted(14_400, works)]
    said = judged(in_steps(sorted(events, key=lambda e: e["at"]), STEP_S, 14_400))
    assert said.snapshots[-1].queues[0].basis == "messages"
    assert len(stalls_at(said)) == 1


def test_counts_of_steady_consumers_that_died_once_are_no_schedule() -> None:
    """They had worked for longer than they were away: the next death is reported as soon as ever."""
    times = stalls_at(judged(in_steps(only_counted(6_000, [(0, 2_400), (3_000, 4_800)]), STEP_S, 6_000)))
    assert len(times) == 2
    assert 4_800 + 240 <= times[1] <= 4_800 + 360


def test_a_queue_that_was_paused_stalls_from_the_end_of_the_pause() -> None:
    """What its operators held back is neither a stall nor a schedule."""
    events = only_counted(6_000, [(3_000, 3_600)], paused=(0, 1_800))
    times = stalls_at(judged(in_steps(events, STEP_S, 6_000)))
    assert len(times) == 2
    assert 1_800 + 240 <= times[0] <= 1_800 + 360
    assert 3_600 + 240 <= times[1] <= 3_600 + 1.25 * 1_200 + 150
