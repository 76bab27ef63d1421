"""Dead letters known by counts and by reports: each is announced once, whichever comes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.reporting.report import Arrival
from streaming.core.settings import QueueName
from streaming.core.state.queues import Depth
from streaming.judge.broker_counts import COUNT_LAG_MS
from streaming.judge.counted_arrivals import GRACE_MS, MOST_EXACT, CountedArrivals
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from tests.core.driving import T0 as STARTED_AT
from tests.core.driving import event, run_steps
from tests.judge.driving import SETTINGS, in_steps, judged

QUEUE = QueueName("aws_sqs", "", "orders-dlq")
QUIET_MS = 300_000
T0 = 1_000_000


def arrival(message_id: str, at_s: int, known_by: str = "event") -> Arrival:
    """Return an arrival reported at the time it happened."""
    at = T0 + 1000 * at_s
    return Arrival(QUEUE, message_id, at, known_by, "orders", 3, (at, at_s))


class DeadLetters:
    """Drives the accounting with times in seconds."""

    def __init__(self) -> None:
        self.known = CountedArrivals()
        self.reported: list[Arrival] = []
        self.announced: list[int] = []

    def report(self, *arrivals: Arrival) -> None:
        """Add arrivals that became known."""
        self.reported += arrivals
        self.known.report(len(self.reported), self.reported)

    def count(self, at_s: int, visible: int) -> None:
        """Apply a count that is examined at once, and note what is announced then."""
        at = T0 + 1000 * at_s
        self.known.count(Depth(at, visible, 0, 0), at)
        self.announced.append(self.known.announce(at, QUIET_MS))


def test_a_move_that_is_reported_before_it_is_counted_is_not_announced_again() -> None:
    """This is the usual order: the count comes with the next poll."""
    dead = DeadLetters()
    dead.count(0, 0)
    dead.report(arrival("a", 10))
    for at_s in range(30, 600, 30):
        dead.count(at_s, 1)
    assert set(dead.announced) == {0}
    dead.report(arrival("b", 610))
    for at_s in range(630, 1200, 30):
        dead.count(at_s, 2)
    assert set(dead.announced) == {0}
    assert dead.known.quiet_ids == []


def test_arrivals_reported_before_the_first_count_are_part_of_it() -> None:
    """Where the queue turns out to be a dead-letter queue by its first arrival, the count known then may be older."""
    dead = DeadLetters()
    dead.report(arrival("a", 10))
    for at_s, visible in ((0, 0), (30, 1), (60, 1), (300, 1)):
        dead.count(at_s, visible)
    assert set(dead.announced) == {0}


def test_an_unreported_arrival_is_announced_and_its_first_receive_is_not() -> None:
    """A first receive may be long after the message was counted."""
    dead = DeadLetters()
    for at_s in range(0, 360, 30):
        dead.count(at_s, 0 if at_s < 60 else 1)
    assert max(dead.announced) == 1
    dead.report(arrival("a", 400, "first_receive"))
    assert dead.known.quiet_ids == ["a"]


@pytest.mark.simulation
def test_counted_arrivals_are_dated_by_the_count_that_showed_them() -> None:
    """They are announced two minutes after it. What is counted later is not said of them: it is announced in its turn."""
    depths = [0, 0, 3, 3, 3, 3, 3, 3, 6, 6, 6, 6, 6, 6, 6, 6, 6]
    source = event("queue_state", 0, "orders", attributes={"dead_letter_queue": "dead"})
    counts = {"in_flight": 0, "delayed": 0}
    polls = [event("queue_state", 30_000 * n, "dead", attributes=counts | {"visible": one}) for n, one in enumerate(depths)]
    changes = judged(in_steps([source, *polls], 10, 900)).changes
    found = sorted((c for c in changes if c.finding.key.signal == "DeadLetterArrived"), key=lambda c: c.finding.since_ms)
    seen = [(c.status, c.finding.since_ms - STARTED_AT, c.finding.evidence["arrived_at"] - STARTED_AT) for c in found]
    first, second = (180_000, 60_000), (360_000, 240_000)
    assert seen == [("firing", *first), ("resolved", *first), ("firing", *second), ("resolved", *second)]
    words = [c.finding.evidence["summary"] for c in found]
    assert words[0] == words[1] == "At least 3 messages arrived in dead: its depth rose to 3 and no event reported the arrival."
    assert words[2] == words[3] == "At least 6 messages arrived in dead: its depth rose to 6 and no event reported the arrival."


@pytest.mark.simulation
def test_arrivals_that_an_earlier_release_announced_are_dated_by_that() -> None:
    """It did not store the count that showed them."""
    name, counts = QueueName("aws_sqs", "", "dead"), {"in_flight": 0, "delayed": 0}
    source = event("queue_state", 0, "orders", attributes={"dead_letter_queue": "dead"})
    polls = [event("queue_state", 30_000 * n, "dead", attributes=counts | {"visible": 3 * (n > 1)}) for n in range(9)]
    *steps, last = run_steps(in_steps([source, *polls], 10, 240), SETTINGS)
    memory = JudgeMemory.empty()
    for merged in steps:
        memory, _, _ = judge(memory, merged, merged.now, SETTINGS)
    stored = memory.queues[name]
    stored.counted_arrivals.shown_at = stored.counted_arrivals.shown_depth = 0
    memory.queues.put(name, stored)
    _, snapshot, _ = judge(memory, last, last.now, SETTINGS)
    (found,) = (f for f in snapshot.firing if f.key.signal == "DeadLetterArrived")
    assert found.evidence["arrived_at"] == STARTED_AT + 180_000
    assert "its depth rose to 3" in found.evidence["summary"]


@pytest.mark.parametrize("known_by", ["event", "inferred"])
def test_a_move_after_a_counted_arrival_is_another_one(known_by: str) -> None:
    """It is announced by its id, and its count is explained by it."""
    dead = DeadLetters()
    for at_s in range(0, 360, 30):
        dead.count(at_s, 0 if at_s < 60 else 1)
    dead.report(arrival("b", 370, known_by))
    for at_s in range(390, 900, 30):
        dead.count(at_s, 2)
    assert dead.known.quiet_ids == []
    assert max(dead.announced) == 1


def test_a_reported_arrival_that_left_before_it_was_counted_hides_no_other() -> None:
    """A job may empty the queue between two counts, again and again."""
    dead = DeadLetters()
    dead.count(0, 0)
    for n in range(10):
        dead.report(arrival(f"drained-{n}", 30 * n + 1))
        dead.count(30 * n + 30, 0)
    dead.count(300 + COUNT_LAG_MS // 1000, 0)
    for at_s in range(420, 420 + 2 * GRACE_MS // 1000, 30):
        dead.count(at_s, 1)
    assert dead.announced[-1] == 1


def test_reported_arrivals_within_the_error_of_a_large_count_are_remembered() -> None:
    """A rise of one in a hundred shows only with six others."""
    dead = DeadLetters()
    dead.count(0, 100)
    for n in range(1, 30):
        dead.report(arrival(f"m{n}", 600 * n))
        for more in (30, 200, 400):
            dead.count(600 * n + more, 100 + n)
    assert set(dead.announced) == {0}


@pytest.mark.parametrize(
    ("depths", "shown"),
    [
        pytest.param([3, 0, 3, 3], 0, id="one count of 0 is stale"),
        pytest.param([21, 19, 21, 19, 21], 0, id="one more and one less"),
        pytest.param([95, 105, 95, 105], 0, id="five per cent more and less"),
        pytest.param([0, 1], 1, id="the first one"),
        pytest.param([0, 3], 3, id="the first three"),
        pytest.param([3, 4], 1, id="one more of few"),
        pytest.param([100, 130], 30, id="more than the counts' error"),
        pytest.param([3, 0, 0, 2], 2, id="emptied, and two more"),
        pytest.param([100, 50, 50, 100, 50, 50, 100], 50, id="again and again: no more than the depth shows"),
    ],
)
def test_the_error_of_counts_is_no_arrival(depths: list[int], shown: int) -> None:
    """Counts of SQS are off by some per cent, each way, and one may be stale. Each is for a minute."""
    dead = DeadLetters()
    for n, visible in enumerate(depths):
        dead.count(60 * n, visible)
    last = 60 * len(depths)
    for at_s in range(last, last + GRACE_MS // 1000 + 1, 60):
        dead.count(at_s, depths[-1])
    assert max(dead.announced) == shown


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    late=st.booleans(),
)
def test_only_what_is_not_reported_is_announced_and_never_more_than_that(steps: list[tuple[int, int]], late: bool) -> None:
    """With exact counts, prompt or a minute late, in a queue that nobody empties."""
    dead, reported, unreported, shown = DeadLetters(), 0, 0, 0
    depths = [0]
    dead.count(0, 0)
    for n, (seen, hidden) in enumerate(steps, start=1):
        dead.report(*(arrival(f"{n}-{i}", 30 * n - 1) for i in range(seen)))
        reported, unreported = reported + seen, unreported + hidden
        depths.append(reported + unreported)
        before = dead.known.announced
        dead.count(30 * n, depths[max(0, n - 2 if late else n)])
        shown += dead.known.announced - before
    for extra in range(1, 10):
        before = dead.known.announced
        dead.count(30 * (len(steps) + extra), depths[-1])
        shown += dead.known.announced - before
    if depths[-1] <= MOST_EXACT:
        assert shown == unreported
    else:
        assert shown <= unreported
