"""How near a quiet signal is to firing: value and limit as the judge uses them for this queue, nearest first."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.explain.near_misses import NearMiss, NearMisses
from streaming.core.settings import QueueRule, Settings
from streaming.judge.findings.measured import Measured
from streaming.judge.findings.signals import SignalName
from streaming.judge.snapshot import ConsumerView, GroupView, MessageView, QueueView
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged
from tests.sinks.fakes import NOW_MS, queue_view

S = 1000


def near(queue: QueueView, settings: Settings | None = None) -> dict[str, str]:
    """Return signal -> sentence."""
    return {miss.signal: miss.sentence for miss in NearMisses(queue, settings or Settings(), NOW_MS).of_queue()}


def with_rule(**rule: Any) -> Settings:
    """Return settings with one rule for queues that match `q-.*`."""
    return Settings(rules=(QueueRule("q-*", **rule),))


def holding(name: str, held_s: float, **known: Any) -> QueueView:
    """Return a queue with a consumer that holds a message."""
    return queue_view(name, consumers=(ConsumerView("w", 1, NOW_MS - round(held_s * S), "m"),), **known)


def test_a_healthy_queue_lists_its_distance_to_each_signal_nearest_first() -> None:
    """Every signal whose numbers are known has its value and its limit."""
    queue = holding("search", 9, visible=8, oldest_ms={"visible": NOW_MS - 450 * S}, receive_count_max=1)
    misses = NearMisses(queue, Settings(), NOW_MS).of_queue()
    assert [(m.signal, m.value, m.limit, m.unit, round(m.nearness, 2)) for m in misses] == [
        ("QueueLagging", 450, 900, "seconds", 0.5),
        ("PoisonMessage", 1, 3, "count", 0.33),
        ("MessageHeldTooLong", 9, 900, "seconds", 0.01),
        ("TelemetryPartial", 1.0, 1.1, "ratio", 0.0),
    ]
    assert near(queue) == {
        "TelemetryPartial": "the tracked messages are 100.0% of the broker's own count; it fires after 10 min above 110%.",
        "QueueLagging": "the oldest visible message is 7 min 30 s old; it fires when it is forecast to reach 15 min within "
        "30 min (2 h where consumers fell silent).",
        "PoisonMessage": "the highest receive count is 1; it fires at 3.",
        "MessageHeldTooLong": "the longest hold is 9 s; it fires after 15 min without a break.",
    }


@pytest.mark.parametrize(
    ("queue", "settings", "signal", "limit", "why"),
    [
        (queue_view("q", receive_count_max=1, broker={"max_receive_count": 2}), Settings(), "PoisonMessage", 2, "few allowed"),
        (
            queue_view("q", receive_count_max=1, broker={"max_receive_count": 1}),
            Settings(),
            "PoisonMessage",
            2,
            "never the first",
        ),
        (queue_view("q", receive_count_max=1, broker={"max_receive_count": 0}), Settings(), "PoisonMessage", 3, "0: not known"),
        (queue_view("q", receive_count_max=1, broker={"max_receive_count": True}), Settings(), "PoisonMessage", 3, "no number"),
        (queue_view("q-1", receive_count_max=3), with_rule(thresholds={"poison_receives": 7}), "PoisonMessage", 7, "override"),
        (
            queue_view("other", receive_count_max=2),
            with_rule(thresholds={"poison_receives": 7}),
            "PoisonMessage",
            3,
            "not its own",
        ),
        (
            queue_view("q-1", receive_count_max=1, broker={}),
            with_rule(max_receive_count=2),
            "PoisonMessage",
            2,
            "the rule's count",
        ),
        (holding("q-1", 5, broker={}), with_rule(visibility_timeout_s=600), "MessageHeldTooLong", 3000, "the rule's window"),
        (holding("q", 5, broker={"visibility_timeout_s": 300}), Settings(), "MessageHeldTooLong", 1500, "the broker's window"),
        (holding("q", 5, broker={}, system="activemq"), Settings(), "MessageHeldTooLong", 900, "a system without windows"),
        (
            queue_view("q-1", is_dead_letter_queue=True, dead_letter_expires_at_ms=NOW_MS + 7_200 * S, broker={}),
            with_rule(retention_s=3_600),
            "DeadLetterExpiring",
            900,
            "a quarter of the rule's retention",
        ),
        (queue_view("q", coverage_ratio=0.95), Settings(), "TelemetryPartial", 0.9, "the nearer of the two"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v else "",
)
def test_limits_are_those_of_the_queue(queue: QueueView, settings: Settings, signal: str, limit: float, why: str) -> None:
    """Limits come from what the broker reported, from overrides for the queue's pattern, and from the defaults."""
    misses: dict[str, float] = {miss.signal: miss.limit for miss in NearMisses(queue, settings, NOW_MS).of_queue()}
    assert misses[signal] == limit, why


RATIOS = {
    "failing_ratio": 0.995,
    "short_window_ratio": 0.005,
    "retry_storm_ratio": 0.125,
    "coverage_low_ratio": 0.925,
}


@pytest.mark.parametrize(
    ("signal", "near_limit", "sentence"),
    [
        (
            "QueueFailing",
            Measured(18, 20, "count"),
            "18 deliveries ended in the last 5 min; it fires from 20 on, if 99.5% end without a settlement.",
        ),
        (
            "QueueFailing",
            Measured(0.4, 0.995, "ratio"),
            "40.0% of the deliveries that ended in the last 5 min ended without a settlement; it fires at 99.5%.",
        ),
        (
            "WindowTooShort",
            Measured(4, 5, "count"),
            "4 deliveries outlived their visibility window in the last 15 min; it fires at 5, if they are 0.5% of all or more.",
        ),
        (
            "WindowTooShort",
            Measured(0.001, 0.0025, "ratio"),
            "0.1% of the deliveries outlived their visibility window in the last 15 min; it fires at 0.25%.",
        ),
        (
            "BatchRetryStorm",
            Measured(9, 10, "count"),
            "9 deliveries in the last 5 min; it fires from 10 on, if 12.5% are redeliveries from failed batches.",
        ),
        (
            "BatchRetryStorm",
            Measured(0.1, 0.125, "ratio"),
            "10.0% of the deliveries in the last 5 min were redeliveries from failed batches; it fires at 12.5%.",
        ),
        (
            "TelemetryPartial",
            None,
            "the tracked messages are 95.0% of the broker's own count; it fires after 10 min below 92.5%.",
        ),
    ],
)
def test_a_limit_of_a_share_is_shown_with_its_decimals(signal: SignalName, near_limit: Measured | None, sentence: str) -> None:
    """Half a per cent is not "it fires at 0%"."""
    measured = {} if near_limit is None else {signal: near_limit}
    queue = queue_view("q-1", coverage_ratio=0.95, near=measured, near_at_ms=NOW_MS)
    assert near(queue, with_rule(thresholds=RATIOS))[signal] == sentence


@pytest.mark.parametrize(
    ("queue", "signal", "why"),
    [
        (queue_view("dlq", is_dead_letter_queue=True, receive_count_max=2), "PoisonMessage", "its count goes on from the source"),
        (queue_view("q", receive_count_max=3), "PoisonMessage", "at the limit and quiet: there is a further condition"),
        (queue_view("q", receive_count_max=1, basis="producers"), "PoisonMessage", "withheld where receives are not reported"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v else "",
)
def test_no_near_miss_where_the_rule_does_not_apply(queue: QueueView, signal: str, why: str) -> None:
    """'It fires at 3' must not stand beside a 6 that does not fire."""
    assert signal not in near(queue), why


def test_the_group_nearest_to_stuck_is_named() -> None:
    """The nearest group is the one without progress for longest; one of which nothing waits behind the head cannot be stuck."""
    groups = (
        GroupView("alone", 1, 0, NOW_MS - 50 * S, "a", 1, None, False),
        GroupView("slow", 4, 1, NOW_MS - 90 * S, "b", 1, NOW_MS - 45 * S, False, NOW_MS - 45 * S),
        GroupView("quick", 4, 1, NOW_MS - 20 * S, "c", 1, None, False, NOW_MS - 20 * S),
        GroupView("delayed", 4, 0, NOW_MS - 59 * S, "d", 0, None, False),
    )
    queue = queue_view("q.fifo", top_groups=groups)
    words = "has finished nothing for 45 s while messages wait behind its head; it fires after 1 min."
    assert near(queue)["GroupStuck"] == f"group slow {words}"
    (of_group,) = NearMisses(queue, Settings(), NOW_MS).of_group(groups[1], frozenset())
    assert of_group.sentence == f"it {words}"


@pytest.mark.simulation
def test_a_group_stands_from_when_its_head_could_be_received() -> None:
    """Its messages are delayed by 100 s, and others are received: it is stuck at 160 s, and near that only from 100 s on."""
    attributes = {"kind": "fifo", "visibility_timeout_s": 30}
    events = [ev("queue_state", 0, "g.fifo", attributes=attributes)]
    events += [ev("sent", n, "g.fifo", message_id=f"a{n}", group="A", visible_at=T0 + 100 * S) for n in range(3)]
    for n in range(0, 200, 5):
        about: dict[str, Any] = {"message_id": f"b{n}", "group": "B"}
        events += [ev("sent", n, "g.fifo", **about), ev("received", n + 1, "g.fifo", receive_count=1, consumer="c", **about)]
        events.append(ev("deleted", n + 2, "g.fifo", **about))
    settings = Settings(now_is_event_time=True)
    near, fired = {}, []
    for snapshot in judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 170), settings).snapshots:
        at_s, (queue,) = (snapshot.at_ms - T0) // 1000, snapshot.queues
        group = next((g for g in queue.top_groups if g.group == "A"), None)
        misses = NearMisses(queue, settings, snapshot.at_ms).of_group(group, frozenset()) if group else ()
        if misses:
            near[at_s] = misses[0].value
        fired += [at_s for f in snapshot.firing if f.key.signal == "GroupStuck"]
    assert (near, fired[0]) == ({s: s - 100 for s in range(100, 160, 10)}, 160)


def test_messages_and_consumers_have_near_misses_of_their_own() -> None:
    """What is asked about determines which signals are compared."""
    message = MessageView("m", "in_flight", NOW_MS - 99 * S, 2, ("oldest",), held_since_ms=NOW_MS - 90 * S)
    queue = holding("q", 450)
    near_misses = NearMisses(queue, Settings(), NOW_MS)

    def values(misses: tuple[NearMiss, ...]) -> list[tuple[str, float]]:
        return [(miss.signal, miss.value) for miss in misses]

    assert values(near_misses.of_message(message, frozenset())) == [("PoisonMessage", 2), ("MessageHeldTooLong", 90)]
    assert values(near_misses.of_message(message, frozenset({"PoisonMessage"}))) == [("MessageHeldTooLong", 90)]
    assert values(near_misses.of_consumer(queue.consumers[0], frozenset())) == [("MessageHeldTooLong", 450)]


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("signal", "settings"),
    [
        ("PoisonMessage", Settings(rules=(QueueRule("q", {"poison_receives": 5}),))),
        ("MessageHeldTooLong", Settings(rules=(QueueRule("q", {"held_min_s": 20.0, "held_visibility_factor": 1.5}),))),
        ("QueueStalled", Settings(rules=(QueueRule("q", {"stalled_s": 70.0}),))),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_nearness_grows_until_the_signal_fires(signal: Any, settings: Settings) -> None:
    """Compared with the judge: while the signal is quiet its nearness grows, and at the limit it fires."""
    settings = Settings(now_is_event_time=True, rules=settings.rules)
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30}), ev("sent", 0, message_id="m")]
    events += [ev("sent", 1, message_id="w"), ev("sent", 1, message_id="done"), ev("deleted", 3, message_id="done")]
    events += [ev("received", 5, message_id="held", receive_count=1, consumer="c", invisible_until=T0 + 400 * S)]
    events += [ev("received", 10 + 40 * n, message_id="m", receive_count=n + 1, consumer="d") for n in range(6)]
    run = judged(in_steps(events, 5, 240), settings)
    looks: list[tuple[float, bool]] = []
    for snapshot in run.snapshots[1:]:
        (queue,) = snapshot.queues
        misses = {m.signal: m.nearness for m in NearMisses(queue, settings, snapshot.at_ms).of_queue()}
        looks.append((misses.get(signal, -1), any(f.key.signal == signal for f in snapshot.firing)))
    first = next(i for i, (_, firing) in enumerate(looks) if firing)
    before = [nearness for nearness, _ in looks[2:first]]
    assert -1 not in before
    assert before == sorted(before)
    assert before[-1] > 0.7
    assert {nearness for nearness, _ in looks[first:]} == {-1}
