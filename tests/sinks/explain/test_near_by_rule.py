"""Near misses of signals whose rules use more than the published numbers, each shortly before it fires and without cause."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.explain.near_misses import NearMiss, NearMisses
from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
SETTINGS = Settings(now_is_event_time=True)
WINDOW_S = 30


def message(name: str, at: float, end: str | None = "deleted", held_s: float = 1, queue: str = "q", **about: Any) -> Events:
    """Events of a message that is sent, received half a second later and ended; with `end=None` it stays in flight."""
    about |= {"message_id": name}
    got = ev("received", at + 0.5, queue, receive_count=1, consumer="w", **about)
    ended = [] if end is None else [ev(end, at + 0.5 + held_s, queue, consumer="w", **about)]
    return [ev("sent", at, queue, **about), got, *ended]


def messages(n: int, end: str | None = "deleted", held_s: float = 1, first: int = 0) -> Events:
    """Events of `n` messages, one per second."""
    return [e for i in range(first, first + n) for e in message(f"m{i}", i, end, held_s)]


def in_batches(failed: int, batches: int) -> Events:
    """Five messages that are delivered in one batch after another; the first `failed` batches fail."""
    out: Events = [ev("sent", 0, message_id=f"m{i}") for i in range(5)]
    for n in range(batches):
        out += [ev("received", 1 + 5 * n, message_id=f"m{i}", receive_count=n + 1, batch_id=f"b{n}") for i in range(5)]
        out.append(ev("batch", 2 + 5 * n, batch_id=f"b{n}", attributes={"size": 5, "failed": 5 * (n < failed)}))
    return out


def groups(backlog: int) -> Events:
    """One group in flight, and other groups that wait."""
    out = message("head", 0, None, queue="q.fifo", group="g0", sequence="0")
    out += [ev("sent", 1, "q.fifo", message_id=f"w{i}", group=f"g{i}", sequence=str(i)) for i in range(1, backlog + 1)]
    return out


def regular(until_s: int) -> Events:
    """One message every 20 s."""
    return [e for at in range(0, until_s, 20) for e in message(f"r{at}", at)]


def backlog(**attributes: Any) -> Events:
    """Twenty messages, of which consumers finish ten and then stop."""
    return [ev("queue_state", 0, attributes=attributes), *messages(10), *messages(10, None, first=10)[::2]]


def counts(until_s: int) -> Events:
    """The broker counts three visible messages, and nothing else is reported."""
    return [ev("queue_state", at, attributes={"visible": 3, "in_flight": 0}) for at in range(0, until_s, 30)]


def every_quarter_of_an_hour(until_s: int) -> Events:
    """A message a minute, of which consumers finish all at once every 15 minutes."""
    out: Events = []
    for i in range(until_s // 60):
        out.append(ev("sent", 60 * i, message_id=f"s{i}"))
        at = (i // 15 + 1) * 900
        if at <= until_s:
            out.append(ev("received", at, message_id=f"s{i}", receive_count=1, consumer="w"))
            out.append(ev("deleted", at + 1, message_id=f"s{i}", consumer="w"))
    return out


def near(events: Events, until_s: int, every_s: int = 10, later_s: int = 0) -> dict[str, NearMiss]:
    """Return the near misses by signal, asked for `later_s` seconds after the last step."""
    state = ev("queue_state", 0, events[0]["queue"], attributes={"visibility_timeout_s": WINDOW_S})
    run = judged(in_steps(sorted([state, *events], key=lambda e: e["at"]), every_s, until_s), SETTINGS)
    (queue,) = run.snapshots[-1].queues
    firing = frozenset(finding.key.signal for finding in run.snapshots[-1].firing)
    misses = NearMisses(queue, SETTINGS, run.snapshots[-1].at_ms + later_s * 1000).of_queue(firing)
    return {miss.signal: miss for miss in misses}


@pytest.mark.parametrize(
    ("signal", "events", "until_s", "value", "limit", "sentence"),
    [
        (
            "QueueFailing",
            messages(12) + messages(8, "released", first=12),
            30,
            0.4,
            0.5,
            "40.0% of the deliveries that ended in the last 5 min ended without a settlement; it fires at 50%.",
        ),
        (
            "QueueFailing",
            messages(18, "released"),
            30,
            18,
            20,
            "18 deliveries ended in the last 5 min; it fires from 20 on, if 50% end without a settlement.",
        ),
        (
            "QueueStalled",
            backlog(),
            250,
            239.5,
            300,
            "messages wait and none has been finished for 4 min; it fires after 5 min.",
        ),
        (
            "QueueStalled",
            counts(240),
            240,
            240,
            270,
            "messages wait and none has been finished for 4 min; it fires after 4 min 30 s.",
        ),
        (
            "QueueStalled",
            every_quarter_of_an_hour(3_300),
            3_300,
            599,
            1_185,
            "messages wait and none has been finished for 9 min 59 s; it fires after 19 min 45 s.",
        ),
        (
            "WindowTooShort",
            messages(4, held_s=40),
            50,
            4,
            5,
            "4 deliveries outlived their visibility window in the last 15 min; it fires at 5, if they are 2% of all or more.",
        ),
        (
            "BatchRetryStorm",
            in_batches(1, 3),
            20,
            1 / 3,
            0.5,
            "33.3% of the deliveries in the last 5 min were redeliveries from failed batches; it fires at 50%.",
        ),
        (
            "SlowConsumer",
            message("held", 0.5, None),
            20,
            19,
            30,
            "a consumer has held its oldest message for 19 s; it fires after 30 s.",
        ),
        (
            "ConcurrencyCollapsed",
            groups(6),
            240,
            230,
            300,
            "1 group or fewer in flight while 5 or more have messages waiting, for 3 min 50 s; it fires after 5 min.",
        ),
    ],
)
def test_a_signal_shows_its_value_and_limit_before_it_fires(
    signal: str, events: Events, until_s: int, value: float, limit: float, sentence: str
) -> None:
    """A signal with several conditions shows the one that is farthest from its limit."""
    miss = near(events, until_s)[signal]
    assert miss.value == pytest.approx(value)
    assert miss.limit == limit
    assert miss.sentence == sentence


def test_a_silence_grows_between_batches() -> None:
    """The queue is silent after 400 s (20 intervals); 240 s have passed at the last batch, and 300 s a minute later."""
    events = regular(2_400)
    miss, later = (near(events, 2_620, 20, later_s)["QueueSilent"] for later_s in (0, 60))
    assert (miss.value, later.value) == (240, 300)
    assert miss.limit == later.limit == pytest.approx(400, rel=0.05)
    assert miss.sentence.startswith("no message has arrived for 4 min; it fires after 6 min")


@pytest.mark.parametrize(
    ("signal", "events", "until_s"),
    [
        ("QueueStalled", messages(20), 400),
        ("QueueStalled", backlog(paused=True), 240),
        ("QueueFailing", messages(20), 30),
        ("WindowTooShort", messages(20, held_s=20), 50),
        ("BatchRetryStorm", in_batches(0, 3), 20),
        ("SlowConsumer", messages(5), 20),
        ("QueueSilent", regular(600), 620),
        ("ConcurrencyCollapsed", groups(3), 240),
    ],
)
def test_a_signal_without_any_cause_is_not_near(signal: str, events: Events, until_s: int) -> None:
    """Without failures, outlived windows, redeliveries, holds, silence, or enough waiting groups, the signal is not listed."""
    assert signal not in near(events, until_s)
