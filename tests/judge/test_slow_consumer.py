"""The three rules on the scenarios that matter, and each rule's own bookkeeping, second by second."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streaming.judge.slow_consumer import (
    ConsumerReport,
    DepartedConsumer,
    StrategyMemory,
    StrategyParams,
    Verdict,
    consumer_report,
    departed_of,
    judge_ack,
    judge_hold,
    judge_prefetch,
    judge_zombie,
)

SECOND = 1_000
START_MS = 1_800_000_000_000  # a multiple of every check period used here
DEFAULTS = StrategyParams()

IDLE = ConsumerReport(
    consumer="ID:app-1:1:1",
    connected=True,
    prefetch=1,
    dispatched=0,
    held_from_ms=0,
    network=False,
    last_ack_at_ms=None,
    connected_at_ms=START_MS,
    oldest_held_since_ms=None,
    queue_waiting=0,
    median_hold_ms=None,
)


def at(second: float) -> int:
    """Epoch milliseconds of a second of the scenario."""
    return START_MS + round(second * SECOND)


def holding(since_s: float, last_ack_s: float | None = None, **changes: Any) -> ConsumerReport:
    """A consumer that holds one message since a second of the scenario."""
    last_ack_ms = None if last_ack_s is None else at(last_ack_s)
    consumer = replace(IDLE, dispatched=1, held_from_ms=at(since_s), oldest_held_since_ms=at(since_s), last_ack_at_ms=last_ack_ms)
    return replace(consumer, **changes)


# -- the scenarios: what is known at each second --


def under_load(second: int) -> ConsumerReport:
    """Takes one message after the other, a tenth of a second each; a thousand wait."""
    return holding(second, second, queue_waiting=1_000, median_hold_ms=100)


def slow_but_steady(second: int) -> ConsumerReport:
    """Every message of this queue takes 50 s; it has done them all."""
    started = second // 50 * 50
    return holding(started, started or None, queue_waiting=9, median_hold_ms=50 * SECOND)


def hung(second: int) -> ConsumerReport:
    """After one good second it never finishes another message; nothing else waits."""
    return holding(min(second, 1), 1, prefetch=5, median_hold_ms=200)


def idle_then_one(second: int) -> ConsumerReport:
    """Nothing for a hundred seconds, then a message that takes its usual fifteen."""
    if 110 <= second < 125:
        return holding(110, median_hold_ms=15 * SECOND)
    return replace(IDLE, median_hold_ms=15 * SECOND, last_ack_at_ms=at(125) if second >= 125 else None)


def rollback_loop(_: int) -> ConsumerReport:
    """A JMS client recovers its session every second: each try is quick, the broker sees one long delivery."""
    return holding(1, median_hold_ms=200)


def long_message(second: int) -> ConsumerReport:
    """The queue's messages take ten seconds; this one takes sixty."""
    if second < 20:
        return holding(second // 10 * 10, second // 10 * 10 or None, median_hold_ms=10 * SECOND)
    if second < 80:
        return holding(20, 20, median_hold_ms=10 * SECOND)
    return replace(IDLE, last_ack_at_ms=at(80), median_hold_ms=10 * SECOND)


def zombie(second: int) -> ConsumerReport:
    """The broker aborted it after forty seconds on its first message."""
    if second < 40:
        return holding(1, median_hold_ms=200)
    return replace(IDLE, connected=False, median_hold_ms=200)


@dataclass(frozen=True)
class Case:
    """A scenario, whether something is wrong in it, and what each rule makes of that by default."""

    consumer: Callable[[int], ConsumerReport]
    is_wrong: bool
    prefetch: str
    ack: str
    hold: str
    why: str
    from_s: int = 0
    """Judged from this second on."""


CASES = (
    Case(under_load, False, "false alarm", "right", "right", "a window of one is full whenever there is work"),
    Case(slow_but_steady, False, "false alarm", "false alarm", "right", "fifty seconds are usual here"),
    Case(hung, True, "missed", "right", "right", "its window has room, so it does not look full"),
    Case(idle_then_one, False, "right", "false alarm", "right", "its last acknowledgement is the broker's clock"),
    Case(rollback_loop, True, "missed", "right", "right", "one message goes round and round and is never settled"),
    Case(long_message, False, "right", "false alarm", "right", "sixty seconds are not much where ten are usual"),
    Case(zombie, True, "missed", "missed", "missed", "no rule about consumers sees one that is none", from_s=41),
)


def answers(case: Case, seconds: int = 180) -> dict[str, bool]:
    """Whether each rule called the consumer slow at any second."""
    memories: dict[str, StrategyMemory | None] = {"prefetch": None, "ack": None}
    said = {"prefetch": False, "ack": False, "hold": False}
    for second in range(seconds):
        consumer = case.consumer(second)
        by_prefetch, memories["prefetch"] = judge_prefetch(consumer, DEFAULTS, memories["prefetch"], at(second))
        by_ack, memories["ack"] = judge_ack(consumer, DEFAULTS, memories["ack"], at(second))
        by_hold = judge_hold(consumer, 30 * SECOND, 10, at(second))
        if second >= case.from_s:
            for rule, verdict in (("prefetch", by_prefetch), ("ack", by_ack), ("hold", by_hold)):
                said[rule] |= verdict.slow
    return said


@pytest.mark.parametrize("rule", ["prefetch", "ack", "hold"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.consumer.__name__) for case in CASES])
def test_scenarios(case: Case, rule: str) -> None:
    said = answers(case)[rule]
    answer = "right" if said == case.is_wrong else "false alarm" if said else "missed"
    assert answer == getattr(case, rule), case.why


def test_hold_names_the_hung_consumer_when_its_limit_is_passed_and_not_before() -> None:
    assert not judge_hold(hung(31), 30 * SECOND, 10, at(31)).slow
    verdict = judge_hold(hung(31), 30 * SECOND, 10, at(31) + 1)
    assert verdict.slow
    assert verdict.since_ms == at(1)
    assert verdict.why == "has held its oldest message for 30 s; the limit is 30 s, the usual hold on this queue is 200 ms"


@pytest.mark.parametrize(
    ("median_s", "held_s", "slow"),
    [(None, 30, False), (None, 31, True), (5, 50, False), (5, 51, True), (0.01, 31, True)],
)
def test_hold_compares_with_what_is_usual(median_s: float | None, held_s: int, slow: bool) -> None:
    median_ms = None if median_s is None else round(median_s * SECOND)
    consumer = holding(0, median_hold_ms=median_ms)
    assert judge_hold(consumer, 30 * SECOND, 10, at(held_s)).slow is slow


def test_hold_never_says_that_the_broker_would_abort() -> None:
    assert not judge_hold(hung(100), 30 * SECOND, 10, at(100)).would_abort


def test_hold_has_nothing_against_a_consumer_that_is_gone_or_idle() -> None:
    assert not judge_hold(IDLE, 0, 0, at(500)).slow
    assert not judge_hold(holding(0, connected=False), 0, 0, at(500)).slow


# -- the broker's ticks --


def by_ack(
    consumer: Callable[[float], ConsumerReport], params: StrategyParams, every_s: float, until_s: float
) -> list[tuple[float, Verdict]]:
    """Judge every so often; answers when the verdict changed."""
    memory: StrategyMemory | None = None
    changes: list[tuple[float, Verdict]] = []
    state = (False, False)
    for step in range(round(until_s / every_s) + 1):
        second = step * every_s
        verdict, memory = judge_ack(consumer(second), params, memory, at(second))
        if (verdict.slow, verdict.would_abort) != state:
            state = (verdict.slow, verdict.would_abort)
            changes.append((second, verdict))
    return changes


def test_ack_by_default_lists_at_the_check_after_the_limit_and_aborts_at_once() -> None:
    """30 s without an acknowledgement are not more than 30 s: the check at 60 s is the first to say so."""
    [(second, verdict)] = by_ack(lambda _: holding(0), DEFAULTS, every_s=1, until_s=100)
    assert (second, verdict.slow, verdict.would_abort) == (60, True, True)


def test_ack_counts_marks_up_to_the_longest_duration() -> None:
    """As measured: limit 3 s, checks each second, so listed at 4 s; ten marks make ten seconds."""
    params = StrategyParams(max_time_since_last_ack_ms=3_000, check_period_ms=1_000, max_slow_duration_ms=10_000)
    changes = by_ack(lambda _: holding(0), params, every_s=0.5, until_s=30)
    assert [(second, v.slow, v.would_abort) for second, v in changes] == [(4, True, False), (13, True, True)]


@pytest.mark.parametrize("every_s", [0.1, 1, 3, 7])
def test_ack_aborts_at_the_same_check_however_often_it_is_judged(every_s: float) -> None:
    params = StrategyParams(max_time_since_last_ack_ms=3_000, check_period_ms=1_000, max_slow_duration_ms=10_000)
    seconds = [second for second, v in by_ack(lambda _: holding(0), params, every_s, 40) if v.would_abort]
    assert seconds[0] - every_s < 13 <= seconds[0] + 1e-9


def test_ack_counts_how_often_it_was_slow() -> None:
    """The first check only lists; each later one counts, until there are three."""
    params = StrategyParams(
        max_time_since_last_ack_ms=3_000,
        check_period_ms=1_000,
        max_slow_duration_ms=-1,
        max_slow_count=3,
    )
    changes = by_ack(lambda _: holding(0), params, every_s=1, until_s=30)
    assert [(second, v.would_abort) for second, v in changes] == [(4, False), (7, True)]


def test_ack_forgets_a_consumer_that_acknowledged() -> None:
    params = StrategyParams(max_time_since_last_ack_ms=3_000, check_period_ms=1_000, max_slow_duration_ms=60_000)
    changes = by_ack(lambda second: holding(0, 6 if second >= 6 else None), params, every_s=1, until_s=9)
    assert [(second, v.slow) for second, v in changes] == [(4, True), (6, False)]


def test_ack_counts_from_one_again_when_the_broker_gave_the_consumer_more() -> None:
    """With room in its window every dispatch clears the broker's own mark: hardly ever is it aborted."""
    params = StrategyParams(max_time_since_last_ack_ms=3_000, check_period_ms=1_000, max_slow_duration_ms=3_000)

    def fed(second: float) -> ConsumerReport:
        return holding(0, prefetch=1_000, dispatched=1 + int(second))

    assert not any(v.would_abort for _, v in by_ack(fed, params, every_s=1, until_s=60))
    assert any(v.would_abort for _, v in by_ack(lambda _: holding(0, prefetch=1_000), params, 1, 60))


@pytest.mark.parametrize(
    ("why", "consumer", "params", "slow"),
    [
        ("idle consumers are ignored", IDLE, DEFAULTS, False),
        ("unless they are not", IDLE, replace(DEFAULTS, ignore_idle_consumers=False), True),
        ("network consumers are ignored", holding(0, network=True), DEFAULTS, False),
        (
            "unless they are not",
            holding(0, network=True),
            replace(DEFAULTS, ignore_network_consumers=False),
            True,
        ),
        ("the rule is off", holding(0), replace(DEFAULTS, max_time_since_last_ack_ms=-1), False),
        ("nobody knows since when", holding(0, connected_at_ms=None), DEFAULTS, False),
        ("it is gone", holding(0, connected=False), DEFAULTS, False),
    ],
)
def test_ack_exceptions(why: str, consumer: ConsumerReport, params: StrategyParams, slow: bool) -> None:
    assert any(v.slow for _, v in by_ack(lambda _: consumer, params, every_s=10, until_s=200)) is slow, why


# -- prefetch --

FULL = holding(0, queue_waiting=5)


def test_prefetch_needs_a_full_window_and_something_waiting() -> None:
    for consumer, slow in (
        (FULL, True),
        (replace(FULL, queue_waiting=0), False),
        (replace(FULL, prefetch=2), False),
        (replace(FULL, prefetch=None), False),
        (replace(FULL, prefetch=0), False),  # it pulls: there is no window
        (replace(FULL, network=True), False),
        (replace(FULL, connected=False), False),
    ):
        assert judge_prefetch(consumer, DEFAULTS, None, at(0))[0].slow is slow


def test_prefetch_never_aborts_on_a_queue() -> None:
    memory: StrategyMemory | None = None
    for second in range(300):
        verdict, memory = judge_prefetch(FULL, DEFAULTS, memory, at(second))
        assert (verdict.slow, verdict.would_abort) == (True, False)
    assert "never aborts for this on a queue" in verdict.why


def test_prefetch_where_it_acts_counts_checks() -> None:
    params = StrategyParams(check_period_ms=1_000, max_slow_duration_ms=3_000, prefetch_aborts_on_queues=True)
    memory: StrategyMemory | None = None
    aborted = []
    for second in range(10):
        verdict, memory = judge_prefetch(FULL, params, memory, at(second))
        aborted.append(verdict.would_abort)
    assert aborted == [False] * 3 + [True] * 7


def test_prefetch_looks_at_the_check_only() -> None:
    """A healthy consumer whose window happens to be full at every check collects marks all the same."""
    params = StrategyParams(check_period_ms=1_000, max_slow_duration_ms=3_000, prefetch_aborts_on_queues=True)
    memory: StrategyMemory | None = None
    verdicts = []
    for tenth in range(50):
        consumer = FULL if tenth % 10 == 0 else replace(FULL, dispatched=0)
        verdict, memory = judge_prefetch(consumer, params, memory, at(tenth / 10))
        verdicts.append(verdict.would_abort)
    assert any(verdicts)


def test_prefetch_counts_how_often_it_became_slow() -> None:
    params = StrategyParams(check_period_ms=1_000, max_slow_duration_ms=-1, max_slow_count=2, prefetch_aborts_on_queues=True)
    memory: StrategyMemory | None = None
    verdicts = []
    for tenth in range(40):
        consumer = FULL if tenth % 10 in (0, 9) else replace(FULL, dispatched=0)
        verdict, memory = judge_prefetch(consumer, params, memory, at(tenth / 10))
        verdicts.append(verdict.would_abort)
    assert verdicts.index(True) == 20


# -- memory --


def test_memory_survives_as_json_and_judging_does_not_change_what_it_was_given() -> None:
    memory: StrategyMemory | None = None
    kept: Any = None
    for second in range(0, 200, 7):
        verdict, memory = judge_ack(holding(0), DEFAULTS, memory, at(second))
        before = json.dumps(kept)
        again, kept_next = judge_ack(holding(0), DEFAULTS, kept, at(second))
        assert json.dumps(kept) == before
        kept = json.loads(json.dumps(kept_next))
        assert again == verdict
    assert verdict.would_abort


# -- what becomes of a consumer that was given up --

ABORTED = DepartedConsumer(
    consumer="ID:app-1:1:1",
    removed_at_ms=at(40),
    returned=1,
    returned_since_ms=at(1),
    last_ack_at_ms=None,
    connection_open=True,
    is_back=False,
)


@pytest.mark.parametrize(
    ("why", "changes", "now_s", "zombie"),
    [
        ("aborted, and its client does not know", {}, 50, True),
        ("its client may be about to go", {}, 44, False),
        ("its client is gone", {"connection_open": False}, 50, False),
        ("its client subscribed again", {"is_back": True}, 50, False),
        ("it held nothing", {"returned": 0, "returned_since_ms": None}, 50, False),
        ("it may have closed just after it got them", {"returned_since_ms": at(39)}, 50, False),
        ("but then its client would do something", {"returned_since_ms": at(39)}, 70, True),
        ("it may have closed with more in its window", {"last_ack_at_ms": at(39)}, 50, False),
        ("but then its client would do something", {"last_ack_at_ms": at(39)}, 70, True),
    ],
)
def test_zombies(why: str, changes: dict[str, Any], now_s: int, zombie: bool) -> None:
    departed = replace(ABORTED, **changes)
    assert judge_zombie(departed, 30 * SECOND, 5 * SECOND, at(now_s)).slow is zombie, why


@pytest.mark.parametrize(("returned", "words"), [(1, "holding 1 message, "), (2, "holding 2 messages, ")])
def test_the_sentence_about_a_zombie_names_how_many_messages_it_held(returned: int, words: str) -> None:
    """In the singular where it is one."""
    assert words in judge_zombie(replace(ABORTED, returned=returned), 30 * SECOND, 5 * SECOND, at(50)).why


def test_long_times_are_in_minutes_and_hours() -> None:
    """Nobody reads `3.6e+03 s`."""
    assert "is still connected 2 h " in judge_zombie(ABORTED, 30 * SECOND, 5 * SECOND, at(2 * 3_600 + 50)).why
    verdict, _ = judge_ack(holding(0, 0), DEFAULTS, None, at(7_200))
    assert "last acknowledged 2 h ago" in verdict.why


def test_a_consumer_that_acknowledged_by_a_clock_ahead_showed_its_last_sign_at_its_removal() -> None:
    """No time is negative."""
    ahead = replace(ABORTED, last_ack_at_ms=ABORTED.removed_at_ms + 5 * SECOND)
    assert ", 0 ms after its last sign of life" in judge_zombie(ahead, 30 * SECOND, 5 * SECOND, at(100)).why


def test_departed_consumers_are_read_from_their_last_state() -> None:
    gone = {
        "connected": False,
        "connection_open": True,
        "removed_at": at(40),
        "returned": 1,
        "returned_since": at(1),
    }
    there = {"connected": True, "prefetch": 1}
    assert departed_of({"ID:app-1:1:1": gone, "ID:app-2:1:1": there}) == [ABORTED]
    [back] = departed_of({"ID:app-1:1:1": gone, "ID:app-1:1:2": there})
    assert back.is_back


def test_a_report_is_read_from_a_consumer_s_state() -> None:
    attributes = {
        "prefetch": 1,
        "dispatched": 1,
        "connected": True,
        "connected_at": at(0),
        "last_ack_at": at(5),
    }
    unknown: dict[str, Any] = {"queue_waiting": 0, "median_hold_ms": None}
    found = consumer_report("ID:app-1:1:1", attributes, oldest_held_since_ms=at(0), dispatched_at_ms=at(9), **unknown)
    assert found == holding(0, 5)
    untracked = consumer_report("ID:app-1:1:1", attributes, oldest_held_since_ms=None, dispatched_at_ms=at(9), **unknown)
    assert untracked.held_from_ms == at(9)
    assert consumer_report("c", {}, oldest_held_since_ms=None, dispatched_at_ms=0, **unknown).connected


@pytest.mark.parametrize(("subscribed_at_s", "is_back"), [(39, False), (40, True), (50, True)])
def test_a_client_that_subscribes_for_each_message_is_no_zombie(subscribed_at_s: int, is_back: bool) -> None:
    """Between two of its consumers there is none; each gives back what it took ahead."""
    gone = {"connected": False, "connection_open": True, "returned": 9, "returned_since": at(38)}
    first = {**gone, "connected_at": at(38), "removed_at": at(40)}
    second = {**gone, "connected_at": at(subscribed_at_s), "removed_at": at(60)}
    departed = {one.consumer: one.is_back for one in departed_of({"ID:app-1:1:1": first, "ID:app-1:2:1": second})}
    assert departed == {"ID:app-1:1:1": is_back, "ID:app-1:2:1": False}


LATE = (
    (holding(0, 0), "overdue from the first check on"),
    (holding(0, 400), "overdue in the middle"),
    (holding(0, 900), "not overdue at all"),
    (holding(0, 0, prefetch=1, queue_waiting=5), "its window is full"),
)


@pytest.mark.parametrize(("consumer", "why"), LATE, ids=[why for _, why in LATE])
@pytest.mark.parametrize("params", [DEFAULTS, replace(DEFAULTS, max_slow_count=9, max_slow_duration_ms=0)])
@pytest.mark.parametrize("before", [0, 100, 500])
@pytest.mark.parametrize("judge", [judge_ack, judge_prefetch])
def test_judging_after_an_outage_is_judging_every_check_of_it(
    consumer: ConsumerReport, why: str, params: StrategyParams, before: int, judge: Callable[..., Any]
) -> None:
    """The broker made its checks meanwhile, whoever looked."""
    begun = judge(consumer, params, None, at(before))[1]
    late, checked = judge(consumer, params, begun, at(900)), (None, begun)
    for second in range(before + 1, 901):
        checked = judge(consumer, params, checked[1], at(second))
    assert late == checked, why


@pytest.mark.parametrize("judge", [judge_ack, judge_prefetch])
def test_a_year_without_a_judgement_takes_no_time(judge: Callable[..., Any]) -> None:
    """Replay judges thousands of consumers after each gap; there are 31 million checks of a second in a year."""
    params = replace(DEFAULTS, check_period_ms=1_000)
    consumer = holding(0, 0, prefetch=1, queue_waiting=5)
    _, memory = judge(consumer, params, None, at(0))
    _, memory = judge(consumer, params, memory, at(2))
    began_s = time.process_time()
    verdict, _ = judge(consumer, params, memory, at(365 * 86_400))
    assert verdict.slow
    assert time.process_time() - began_s < 1
