"""When the oldest message of an outage was sent, from the first count that is certainly about it: when it is concluded at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from streaming.core.state.queues import Depth
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.standstill import update_consumer_activity, update_standstill
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

STEP_MS = 10_000
DIED_AT = 600_000
"""A message a second until then and after; samples every ten seconds for fifteen minutes."""


def samples(*, received: int, unsent: int = 0, until: int = 900_000) -> Window:
    """Return samples of a queue whose consumers died at DIED_AT."""
    at = np.arange(STEP_MS, until + 1, STEP_MS, dtype=np.int64)
    values = np.zeros((len(at), len(FIELDS)), dtype=np.int64)
    done = (np.minimum(at, DIED_AT) - STEP_MS) / (DIED_AT - STEP_MS)
    values[:, COLUMN["sent"]] = at // 1000
    values[:, COLUMN["touched"]] = done * received
    values[:, COLUMN["touched_unsent"]] = done * unsent
    return Window(at, values)


def evidence(*, agreed_since: int = 1) -> Evidence:
    """Return evidence of a standstill since one minute after the death, where sends agree with the counts."""
    return Evidence(frozen_since=660_000, frozen_sure_at=660_000, frozen_counts=4, sends=Claim(agreed_since, 20))


def depth(at: int, visible: int) -> Depth:
    return Depth(at, visible, 0, 0)


def test_the_oldest_is_at_the_youngest_as_old_as_the_newest_sends_before_the_count() -> None:
    """90 messages are counted a minute late: nine tenths of them, 81, were sent in the 91 s before all sends were reported."""
    e = evidence()
    update_standstill(e, depth(750_000, 90), samples(received=500))
    assert e.standstill_at == 680_000


@pytest.mark.parametrize(
    ("why", "at", "received", "unsent", "agreed_since"),
    [
        ("the count may be from before the standstill", 749_999, 500, 0, 1),
        ("few receives do not show that sends are complete", 750_000, 99, 0, 1),
        ("some sends are not reported", 750_000, 500, 1, 1),
        ("only producers are instrumented, and no later count shows that all are", 750_000, 0, 0, 1),
        ("a count contradicted the sends", 750_000, 500, 0, 0),
        ("sends were complete only after that", 750_000, 500, 0, 700_000),
    ],
)
def test_nothing_is_concluded(why: str, at: int, received: int, unsent: int, agreed_since: int) -> None:
    """Each condition of the argument is checked."""
    e = evidence(agreed_since=agreed_since)
    update_standstill(e, depth(at, 90), samples(received=received, unsent=unsent))
    assert e.standstill_at == 0, why


def test_a_hundred_receives_are_enough() -> None:
    """The boundary of the evidence that sends are complete."""
    e = evidence()
    update_standstill(e, depth(750_000, 90), samples(received=100))
    assert e.standstill_at > 0


def test_a_sign_of_life_ends_the_conclusion() -> None:
    """What was there then may have left."""
    e = evidence()
    update_standstill(e, depth(750_000, 90), samples(received=500))
    update_consumer_activity(e, [depth(750_000, 90)], Depth(780_000, 100, 4, 0), 780_000, active_at=0)
    assert e.standstill_at == 0


def test_it_is_concluded_once() -> None:
    """A later count is larger, so its error costs more, and a producer that joins meanwhile would be missed."""
    e = evidence()
    update_standstill(e, depth(750_000, 90), samples(received=500))
    update_standstill(e, depth(780_000, 400), samples(received=500))
    assert e.standstill_at == 680_000


def counted(times: Iterable[int], backlog: Callable[[int], int], past: Callable[[int], Window] | None = None) -> Evidence:
    """Return the evidence after counts at these times, where only producers report. `past`: the samples until a time."""
    e = evidence()
    for at in times:
        update_standstill(e, depth(at, backlog(at)), past(at) if past else samples(received=0, until=at + STEP_MS))
    return e


def sent_since_death(late_ms: int) -> Callable[[int], int]:
    """Return what a count shows that is late by this: a message a second since the death, and ten from before it."""
    return lambda at: (at - late_ms - DIED_AT) // 1000 + 10


GROWING = range(750_000, 1_150_001, 30_000)


@pytest.mark.parametrize("late_ms", [0, 30_000, 60_000, 90_000])
def test_growth_by_exactly_the_sends_shows_that_all_are_reported(late_ms: int) -> None:
    """However late the counts are: the smallest lateness that fits is assumed, and traffic is regular here."""
    e = counted((*GROWING, 1_150_000), sent_since_death(late_ms))
    assert e.standstill_at == 750_000 - 1000 * sent_since_death(late_ms)(750_000) + STEP_MS


def test_the_lateness_of_counts_is_found_where_traffic_is_irregular() -> None:
    """The oldest of those counted was sent ten seconds before the death, which the smallest possible lateness would not show."""

    def irregular(at: int) -> Window:
        past = samples(received=0, until=at + STEP_MS)
        past.values[:, COLUMN["sent"]] += np.round(8 * np.sin(past.at / 37_000)).astype(np.int64) + past.at // 70_000
        return past

    def sent(at: int) -> int:
        return irregular(1_200_000).column("sent", [at // STEP_MS - 1]).item()

    e = counted((*GROWING, 1_150_000), lambda at: sent(at - 60_000) - sent(DIED_AT - STEP_MS), irregular)
    assert e.standstill_lags_ms == [60_000]
    assert e.standstill_at == DIED_AT


@pytest.mark.parametrize(
    ("why", "times", "backlog"),
    [
        ("a quarter of the sends is not reported", (*GROWING, 1_150_000), lambda at: (at - DIED_AT) * 4 // 3000),
        ("a tenth leaves unseen", (*GROWING, 1_150_000), lambda at: (at - DIED_AT) * 9 // 10_000),
        ("it has not grown for long", GROWING[:-1], sent_since_death(0)),
        ("nothing was sent", (*GROWING, 1_150_000), lambda _: 90),
    ],
)
def test_growth_proves_nothing(why: str, times: Iterable[int], backlog: Callable[[int], int]) -> None:
    """Each condition of the argument is checked."""
    assert counted(times, backlog).standstill_at == 0, why


def test_a_producer_that_reports_only_since_the_death_proves_nothing() -> None:
    """The backlog grows by what it sends. But half of what was counted first it had not reported."""

    def joined(at: int) -> Window:
        past = samples(received=0, until=at + STEP_MS)
        past.values[:, COLUMN["sent"]] -= np.minimum(past.at, 780_000) // 2000
        return past

    assert counted((*GROWING, 1_150_000), sent_since_death(0), joined).standstill_at == 0


@pytest.mark.parametrize(("active", "standing"), [(False, 10), (True, 0)], ids=["nothing reported", "deletions between them"])
def test_equal_counts_are_no_standstill_while_deliveries_or_ends_are_reported(active: bool, standing: int) -> None:
    """Ten counts of one message, half a minute apart."""
    e, depths = Evidence(), list[Depth]()
    for at in range(30_000, 330_000, 30_000):
        counted = Depth(at, 1, 0, 0)
        update_consumer_activity(e, depths, counted, at, active_at=at - 1_000 if active else 0)
        depths.append(counted)
    assert e.frozen_counts == standing


@pytest.mark.simulation
def test_counts_in_step_with_regular_traffic_find_another_message_each_time() -> None:
    """Its age does not grow, and nothing is stalled: each was sent a second before the count and is deleted after it."""
    events = []
    for at in range(0, 1800, 30):
        counts = {"visibility_timeout_s": 30, "visible": 1, "in_flight": 0, "delayed": 0}
        about = {"message_id": f"m{at}", "consumer": "w"}
        events.append(ev("queue_state", at, attributes=counts))
        events.append(ev("received", at + 1, receive_count=1, sent_at=T0 + 1000 * at - 1_000, **about))
        events.append(ev("deleted", at + 2, **about))
    found = judged(in_steps(events, 10, 1800))
    ages_ms = [s.at_ms - since for s in found.snapshots for since in s.queues[0].oldest_ms.values() if since is not None]
    assert max(ages_ms, default=0) <= 31_000
    assert not [c for c in found.changes if c.finding.key.signal == "QueueStalled"]


@pytest.mark.parametrize(
    ("why", "sent", "grown", "delayed", "leaves"),
    [
        ("as many were sent as are there more", 120, 120, 0, False),
        ("none were sent", 0, 0, 0, False),
        ("the difference is within the counts' error", 120, 105, 0, False),
        ("many were sent, and no more are there", 120, 0, 0, True),
        ("those sent may be delayed, which is not counted", 120, 0, -1, False),
    ],
)
def test_a_backlog_that_grows_by_less_than_was_sent_is_no_standstill(
    why: str, sent: int, grown: int, delayed: int, leaves: bool
) -> None:
    """Polls in step with consumers on a schedule show the same backlog each time: what was sent in between has left."""
    first, last = 100_000, 400_000
    e = Evidence(life_at=90_000)
    update_consumer_activity(e, [], Depth(first, 100, 0, delayed), first, active_at=0)
    past = samples(received=0, until=last + 10_000)
    past.values[:, COLUMN["sent"]] = np.clip((past.at - first - 20_000) * sent // 120_000, 0, sent)
    update_standstill(e, Depth(last, 100 + grown, 0, delayed), past)
    assert (e.life_at > first) is leaves, why
    assert (e.frozen_since > first) is leaves, why
    later = Evidence(life_at=90_000, frozen_since=first + 4_000_000, frozen_first=100)
    shifted = Window(past.at + 4_000_000, past.values)
    update_standstill(later, Depth(last + 4_000_000, 100 + grown, 0, delayed), shifted)
    assert later.life_at == 90_000, "an hour after the last sign of life, messages may leave because they expire"


@pytest.mark.parametrize(
    ("seen", "sent"),
    [
        pytest.param([1, 0], 60, id="one count finds a message"),
        pytest.param([1, 1, 0], 60, id="two counts in a row find one"),
    ],
)
def test_messages_that_polls_far_apart_happen_to_find_do_not_stall(seen: list[int], sent: int) -> None:
    """Consumers that do not report take each message within a second; only producers report, and polls are five minutes apart."""
    polls = [0, 0, *seen]
    until = 300 * len(polls)
    events = [ev("sent", n * 300 / sent, message_id=f"m{n}") for n in range(until * sent // 300)]
    for n, visible in enumerate(polls):
        counts = {"visible": visible, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
        events.append(ev("queue_state", 300 * n + 2, attributes=counts))
    found = judged(in_steps(sorted(events, key=lambda one: int(one["at"])), 10, until))
    assert not [c for c in found.changes if c.finding.key.signal == "QueueStalled"]
    assert not {"stalled", "stopped"} & {s.queues[0].status for s in found.snapshots}


def test_two_counts_far_apart_show_a_stall() -> None:
    """The backlog grows by what is sent, and nothing is in flight."""
    events = [ev("sent", 5 * n, message_id=f"m{n}") for n in range(300)]
    for at in range(2, 1500, 300):
        counts = {"visible": max(at - 600, 0) // 5, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
        events.append(ev("queue_state", at, attributes=counts))
    found = judged(in_steps(sorted(events, key=lambda one: int(one["at"])), 10, 1500))
    assert [c.status for c in found.changes if c.finding.key.signal == "QueueStalled"] == ["firing"]


def test_consumers_on_a_schedule_in_step_with_the_polls_do_not_stall() -> None:
    """They empty the queue each minute, half a minute before it is polled; only producers report."""
    events = [ev("sent", n / 2, message_id=f"m{n}") for n in range(2 * 900)]
    counts = {"visible": 15, "in_flight": 0, "delayed": 0, "visibility_timeout_s": 30}
    events += [ev("queue_state", at, attributes=counts) for at in range(0, 901, 60)]
    found = judged(in_steps(sorted(events, key=lambda one: int(one["at"])), 10, 900))
    assert not [c for c in found.changes if c.finding.key.signal == "QueueStalled"]


@pytest.mark.simulation
def test_messages_that_expire_do_not_show_a_consumer() -> None:
    """Only producers report, and the consumers are gone for longer than the retention: as many messages expire as are sent.

    Somebody who looks at a message once seems to be a consumer.
    """
    looked_at_s = 1500
    events = [ev("sent", at, message_id=f"m{at}") for at in range(0, 3000, 2)]
    for at in range(30, 3000, 30):
        waiting = min(max(at - 600, 0), 600) // 2
        counts = {"visible": waiting, "in_flight": {0: 2, 300: int(at == looked_at_s)}.get(waiting, 0), "delayed": 0}
        events.append(ev("queue_state", at, attributes={**counts, "visibility_timeout_s": 30, "retention_s": 600}))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 3000)).changes_seen()
    assert [status for _, signal, status, _ in found if signal == "QueueStalled"] == ["firing", "resolved", "firing"]


def test_a_backlog_of_which_messages_expire_may_fall_slowly() -> None:
    """It is what was sent within the retention, so over hours it varies by a tenth and more; a consumer takes it faster."""
    retention_ms, every_ms = 3_600_000, 60_000

    def stands(fall_per_count: float, counts: int = 40) -> bool:
        e, depths = Evidence(life_at=1), [depth(every_ms, 100)]
        for i in range(2, 120 + counts):
            fallen = fall_per_count * max(i - 120, 0)
            now = depth(i * every_ms, min(10 * i, int(1000 - fallen)))
            update_consumer_activity(e, depths, now, now.at, active_at=0, retention_ms=retention_ms)
            depths.append(now)
        return e.life_at == 1

    assert stands(5)
    assert not stands(50)
