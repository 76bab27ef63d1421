"""Lower bounds of ages where not everything is reported: each is published only where its condition is established."""

from __future__ import annotations

import numpy as np
import pytest

from streaming.core.reporting.report import QueueSummary
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.compare import compare_count
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.queue import least_ages
from tests.contract.replaying import ev
from tests.core.driving import T0, run_steps

NOW = T0 + 600_000
STEP_MS = 10_000


def counted(visible: int, in_flight: int) -> QueueSummary:
    """Return a queue of which nothing but the broker's count is known."""
    about = {"visibility_timeout_s": 30, "visible": visible, "in_flight": in_flight, "delayed": 0}
    return run_steps([(600_000, [ev("queue_state", 600, attributes=about)])], Settings())[-1].queues[
        QueueName("aws_sqs", "", "q")
    ]


def samples(**totals: list[int]) -> Window:
    """Return samples ten seconds apart, the last of them now."""
    length = len(next(iter(totals.values())))
    values = np.zeros((length, len(FIELDS)), dtype=np.int64)
    for name, column in totals.items():
        values[:, COLUMN[name]] = column
    return Window(NOW - STEP_MS * np.arange(length - 1, -1, -1, dtype=np.int64), values)


@pytest.mark.parametrize("reported", [True, False], ids=["ends are reported", "ends may be missing"])
def test_a_message_that_is_held_is_a_bound_only_if_its_deletion_would_be_seen(reported: bool) -> None:
    """Otherwise it may have left the queue, and seems to be held until its window ends."""
    about = {"visibility_timeout_s": 30, "visible": 4, "in_flight": 1, "delayed": 0}
    events = [
        ev("received", 590, message_id="m", receive_count=1, sent_at=T0 + 500_000),
        ev("queue_state", 600, attributes=about),
    ]
    summary = run_steps([(600_000, events)], Settings())[-1].queues[QueueName("aws_sqs", "", "q")]
    ages = least_ages(Evidence(seen_at=NOW), summary, samples(sent=[0]), summary.depths[-1], NOW, ends_reported=reported)
    assert {scope: age.since_ms for scope, age in ages.items()} == ({"all": T0 + 500_000} if reported else {})


@pytest.mark.parametrize(
    ("exact_sends", "exact_in_flight", "in_flight", "known"),
    [
        pytest.param(3, 0, 0, True, id="three counts grew by exactly the reported sends"),
        pytest.param(2, 0, 0, False, id="two may by chance"),
        pytest.param(0, 10, 2, True, id="ten counts of two or more in flight match"),
        pytest.param(0, 9, 2, False, id="nine are too few"),
        pytest.param(0, 10, 1, False, id="the latest shows one in flight: another consumer may just have finished"),
    ],
)
def test_an_age_is_taken_from_the_sends_only_if_they_are_all_reported(
    exact_sends: int, exact_in_flight: int, in_flight: int, known: bool
) -> None:
    """A message a second is sent and forty are left, so the oldest was sent about forty seconds ago."""
    summary = counted(40 - in_flight, in_flight)
    evidence = Evidence(seen_at=NOW, sends=Claim(T0, 20), exact_sends=exact_sends, exact_in_flight=exact_in_flight)
    past = samples(sent=list(range(0, 600, 10)), counted_at=[NOW] * 60, counted_visible=[40] * 60)
    ages = least_ages(evidence, summary, past, summary.depths[-1], NOW, ends_reported=False)
    assert ("all" in ages) is known
    assert not known or NOW - 50_000 <= ages["all"].since_ms <= NOW - 30_000


@pytest.mark.parametrize(
    ("pairs", "matches"),
    [
        pytest.param([(2, 2)] * 4, 4, id="all match"),
        pytest.param([(2, 2)] * 3 + [(2, 1)], 0, id="one is not tracked"),
        pytest.param([(1, 1)] * 4, 0, id="one in flight matches by chance"),
        pytest.param([(2, 2), (1, 1), (0, 0), (3, 3)], 2, id="few in flight are no contradiction"),
    ],
)
def test_counts_in_flight_that_match_are_counted(pairs: list[tuple[int, int]], matches: int) -> None:
    """Counted and tracked messages in flight at each count."""
    past = samples(tracked_in_flight=[tracked for _, tracked in pairs for _ in range(3)])
    depths = [Depth(past.times[3 * n], 5, held, 0) for n, (held, _) in enumerate(pairs)]
    evidence = Evidence()
    for n, depth in enumerate(depths):
        compare_count(evidence, depths[:n], depth, past)
    assert evidence.exact_in_flight == matches


@pytest.mark.parametrize(
    ("left_unseen", "there"),
    [pytest.param(0, True, id="none left unseen"), pytest.param(2, False, id="two of them left unseen")],
)
def test_rows_of_a_nearly_empty_queue_are_there_only_if_the_counts_add_up_to_as_many(left_unseen: int, there: bool) -> None:
    """Two messages come and go every twenty seconds: each count of zero may be of a moment at which no row was there."""
    steps = range(60)
    sent, departed = [2 * ((n + 1) // 2) for n in steps], [2 * (n // 2) for n in steps]
    there_now = [came - went for came, went in zip(sent, departed, strict=True)]
    past = samples(sent=sent, departed=departed, unsettled=[left_unseen + n for n in there_now])
    depths = [Depth(past.times[n], there_now[n], 0, 0) for n in range(7, 60, 5)]
    evidence = Evidence()
    for n, depth in enumerate(depths):
        compare_count(evidence, depths[:n], depth, past)
    assert evidence.rows.holds(NOW) is there


def test_what_is_visible_is_at_least_a_part_of_all() -> None:
    """The oldest of two visible messages was sent since the sends are complete; the three in flight may be older than that."""
    summary = counted(2, 3)
    evidence = Evidence(seen_at=NOW, sends=Claim(NOW - 35_000, 20), exact_sends=3)
    ages = least_ages(evidence, summary, samples(sent=[0, 1, 2, 3, 4, 5]), summary.depths[-1], NOW, ends_reported=False)
    assert {scope: age.since_ms for scope, age in ages.items()} == dict.fromkeys(("all", "visible"), NOW - 10_000)


@pytest.mark.parametrize(
    ("retention_ms", "since_ms"),
    [
        pytest.param(NEVER, NOW - 500_000, id="messages are kept until they are settled"),
        pytest.param(300_000, NOW - 300_000, id="those of then have expired, and others are counted"),
    ],
)
def test_no_backlog_is_older_than_its_retention(retention_ms: int, since_ms: int) -> None:
    """While consumers are gone, as many messages expire as are sent, and the count stays the same."""
    frozen_at = NOW - 500_000
    evidence = Evidence(seen_at=NOW, frozen_since=frozen_at, frozen_counts=50, frozen_sure_at=frozen_at)
    summary = counted(120, 0)
    ages = least_ages(
        evidence, summary, samples(sent=[0]), summary.depths[-1], NOW, ends_reported=False, retention_ms=retention_ms
    )
    assert {scope: age.since_ms for scope, age in ages.items()} == {"all": since_ms, "visible": since_ms}


@pytest.mark.parametrize(
    ("received", "known"),
    [
        pytest.param(1.0, True, id="all were received while consumers worked"),
        pytest.param(0.5, False, id="half of them: other consumers do not report"),
    ],
)
def test_a_sent_message_is_still_there_only_if_those_before_were_seen_to_be_received(received: float, known: bool) -> None:
    """Consumers died five minutes ago. More messages are counted than tracked: some producers do not report either."""
    died_at = NOW - 300_000
    counts = {"visibility_timeout_s": 30, "visible": 90, "in_flight": 0, "delayed": 0}
    events = [ev("sent", 200, message_id="m"), ev("queue_state", 600, attributes=counts)]
    summary = run_steps([(600_000, events)], Settings())[-1].queues[QueueName("aws_sqs", "", "q")]
    evidence = Evidence(
        seen_at=NOW, life_at=died_at, frozen_since=died_at, rows=Claim(T0, 20), tracked_sum=40, counted_sum=90, counted_at=NOW
    )
    touched = [int(min(n, 30) * 10 * received) for n in range(60)]
    past = samples(sent=list(range(0, 600, 10)), touched=touched)
    ages = least_ages(evidence, summary, past, summary.depths[-1], NOW, ends_reported=False)
    assert {age.since_ms for age in ages.values()} == ({T0 + 200_000} if known else set())


@pytest.mark.parametrize(
    ("agreed_at_s", "known"),
    [
        pytest.param(50, True, id="the ends agreed with the counts before it was received"),
        pytest.param(200, False, id="only since then: who received it may have deleted it unseen"),
    ],
)
def test_a_received_message_is_still_there_only_if_its_end_would_have_been_seen(agreed_at_s: int, known: bool) -> None:
    """It was received at 100 s, and its window ended without a report."""
    counts = {"visibility_timeout_s": 30, "visible": 90, "in_flight": 0, "delayed": 0}
    events = [
        ev("received", 100, message_id="m", receive_count=1, sent_at=T0 + 70_000),
        ev("queue_state", 600, attributes=counts),
    ]
    summary = run_steps([(600_000, events)], Settings())[-1].queues[QueueName("aws_sqs", "", "q")]
    evidence = Evidence(seen_at=NOW, ends=Claim(T0 + 1000 * agreed_at_s, 20), in_flight_sum=50.0)
    ages = least_ages(evidence, summary, samples(sent=[0]), summary.depths[-1], NOW, ends_reported=False)
    assert {age.since_ms for age in ages.values()} == ({T0 + 70_000} if known else set())
