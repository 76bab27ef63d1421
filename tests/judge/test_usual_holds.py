"""How long a queue's messages are usually held: how exact it is, what does not matter, and what an earlier release had stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.core.events.packet import empty_packet
from streaming.core.maintenance.reshard import reshard
from streaming.core.reporting.merge import merge
from streaming.core.settings import QueueName, Settings
from streaming.core.state.duration_buckets import BOUNDS_MS, median_ms, quantile_ms
from streaming.core.track import track
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.memory.queue_memory import QueueMemory
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.core.state.test_upgrades import stored_states
from tests.judge.driving import Step, judged
from tests.streaming.checkpoints import unpacked

HELD_FOR_S = 700


def usual_hold_s(steps: list[Step], *, shards: int = 1, restart: bool = False) -> float:
    """Return the usual hold that `SlowConsumer` states about a message that is held for longer than any of these."""
    end_s = steps[-1][0] // 1_000
    about = {"message_id": "long", "consumer": "w", "invisible_until": ev("x", end_s + 2_000)["at"]}
    held = [ev("sent", end_s, message_id="long"), ev("received", end_s, receive_count=1, **about)]
    (slow,) = judged([*steps, (steps[-1][0] + HELD_FOR_S * 1_000, held)], shards=shards, restart=restart).firing("SlowConsumer")
    usual: float = slow.evidence["usual_hold_s"]
    return usual


def work(n: int, work_s: float) -> list[dict[str, Any]]:
    """Return `n` messages of which each is held for `work_s`."""
    about = [{"message_id": f"m{i}", "consumer": "w"} for i in range(n)]
    out = [ev("sent", i, message_id=f"m{i}") for i in range(n)]
    out += [ev("received", i, receive_count=1, **one) for i, one in enumerate(about)]
    return out + [ev("deleted", i + work_s, **one) for i, one in enumerate(about)]


@pytest.mark.parametrize("work_s", [0.05, 0.4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 23, 33, 45, 64])
def test_the_median_hold_is_known_to_within_a_tenth(work_s: float) -> None:
    assert usual_hold_s([(100_000, work(20, work_s))]) == pytest.approx(work_s, rel=0.1)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("first", ["sent", "received", "deleted"])
def test_the_order_in_which_the_events_of_messages_arrive_does_not_matter(first: str, shards: int) -> None:
    """One kind of them is read a step before the others."""
    events = work(20, 6)
    early = [event for event in events if event["type"] == first]
    steps: list[Step] = [(100_000, early), (101_000, [event for event in events if event not in early])]
    assert usual_hold_s(steps, shards=shards) == usual_hold_s([(101_000, events)])


def test_recent_messages_weigh_more() -> None:
    """Three of now weigh more than five, and less than seven, of an hour ago."""
    now = [event | {"message_id": f"n{event['message_id']}", "at": event["at"] + 3_600_000} for event in work(3, 2)]
    assert usual_hold_s([(100_000, work(5, 20)), (3_700_000, now)]) == pytest.approx(2, rel=0.1)
    assert usual_hold_s([(100_000, work(7, 20)), (3_700_000, now)]) == pytest.approx(20, rel=0.1)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("vanishes", "restart"), [(False, False), (True, False), (True, True)], ids=["stays", "vanishes", "restarts"]
)
def test_what_a_queue_did_before_it_vanished_weighs_little_when_it_comes_back(vanishes: bool, restart: bool) -> None:
    """It had faded for a day when the work began to take longer. With counts of the empty queue in between it does not vanish."""
    day_s = 86_400
    steps: list[Step] = [(700_000, work(600, 0.05))]
    for at_s in range(1_000, day_s, 600):
        counts = {"visible": 0, "in_flight": 0, "delayed": 0}
        steps.append((at_s * 1_000, [] if vanishes else [ev("queue_state", at_s, attributes=counts)]))
    later = [event | {"message_id": f"n{event['message_id']}", "at": event["at"] + day_s * 1_000} for event in work(40, 60)]
    steps.append((day_s * 1_000, [event for event in later if event["at"] <= T0 + day_s * 1_000]))
    steps.append(((day_s + 110) * 1_000, [event for event in later if event["at"] > T0 + day_s * 1_000]))
    assert usual_hold_s(steps, restart=restart) == pytest.approx(60, rel=0.1)


def test_the_longest_hold_is_that_of_the_last_bucket_whatever_sums_are_rounded_to() -> None:
    """Weights are fractions, and the order in which they are added changes their sum."""
    weights = {9: 0.1, 7: 0.2, 8: 0.3, 3: 0.7}
    assert quantile_ms(weights, 1.0) == BOUNDS_MS[9]
    assert (quantile_ms({}, 1.0), median_ms({})) == (None, None)


def test_what_an_earlier_release_learned_is_kept_and_not_counted_again() -> None:
    """It had two buckets per doubling; from 5.8 s to 8.2 s, for one."""
    stored = QueueMemory.of(QueueMemory().numbers(), '{"holds_counted":{"25":40},"holds":{"25":30.5}}')
    assert median_ms(stored.hold_weights) == pytest.approx(6_888, rel=0.1)
    assert sum(stored.hold_weights.values()) == 30.5


def test_a_checkpoint_of_an_earlier_release_keeps_the_usual_holds(tmp_path: Path) -> None:
    """With its state and the judge's memory: weights fade as before, and what is deleted later is added once."""
    checkpoint = unpacked("state-12", tmp_path)
    memory = JudgeMemory.from_bytes(sorted((checkpoint / "judge").glob("*.memory"))[-1].read_bytes())
    (state,) = reshard(stored_states(checkpoint), 1, Settings())
    queue = QueueName("aws_sqs", "eu/1", "payments.fifo")
    before = memory.queues[queue]
    assert sum(before.hold_weights.values()) > 1_000
    now = state.now + 1_000
    state, report = track(state, empty_packet(), now, Settings())
    merged = merge([report], Settings())
    memory, _, _ = judge(memory, merged, now, Settings())
    after = memory.queues[queue]
    assert sum(after.hold_weights.values()) == pytest.approx(sum(before.hold_weights.values()), rel=0.05)
    assert after.processed == merged.queues[queue].total("processed") == sum(after.processed_by_bucket.values()) > 1_000
