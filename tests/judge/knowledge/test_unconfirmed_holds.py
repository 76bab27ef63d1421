"""Messages that a consumer settled unseen are not held against it, and those that it really holds are."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
SETTINGS = Settings(now_is_event_time=True)
CONSUMER = "ID:app-1:1:1:1"
AWAY_S = range(600, 605)
"""While the collector was restarted, it saw nothing."""


def busy(until_s: int, *, hung_at_s: int | None = None, restarted: bool = True, shared: bool = True) -> Events:
    """A consumer of ActiveMQ works on five messages at a time, one a second; it may hang."""
    mq = {"system": "activemq"}
    out: Events = []
    for at in range(until_s):
        stuck = hung_at_s is not None and at + 5 >= hung_at_s
        out.append(ev("sent", at, message_id=f"m{at}") | mq)
        if hung_at_s is None or at < hung_at_s:
            out.append(ev("received", at, message_id=f"m{at}", receive_count=1, consumer=CONSUMER) | mq)
        if not stuck:
            out.append(ev("deleted", at + 4.95, message_id=f"m{at}", consumer=CONSUMER) | mq)
    if restarted:
        missed = {T0 + 1000 * s for s in AWAY_S}
        out = [e for e in out if e["at"] // 1000 * 1000 not in missed]
    for at in range(0, until_s, 10):
        visible = max(0, at - hung_at_s) if hung_at_s is not None else 0
        out.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": 5, "delayed": 0}) | mq)
    for at in range(5, until_s, 30):
        state = {"connected": True, "prefetch": 5} | ({"dispatched": 5} if shared else {})
        out.append(ev("consumer_state", at, consumer=CONSUMER, attributes=state) | mq)
    return sorted(out, key=lambda e: e["at"])


def slow(run: Judged) -> list[tuple[int, str]]:
    """Return when queuewatch's own SlowConsumer changed, in seconds, and how: without those of the broker's strategies."""
    own = (c for c in run.changes if c.finding.key.signal == "SlowConsumer" and c.finding.key.part is None)
    return [((c.at_ms - T0) // 1000, c.status) for c in own]


@pytest.mark.simulation
@pytest.mark.parametrize("shards", [1, 2])
def test_what_was_settled_while_the_collector_was_restarted_is_held_against_nobody(shards: int) -> None:
    """Its count of five is what the consumer holds now, beside the five of which no end was seen."""
    changes = slow(judged(in_steps(busy(900), 3, 900), SETTINGS, shards=shards))
    fired = [at for at, status in changes if status == "firing"]
    resolved = [at for at, status in changes if status == "resolved"]
    assert len(fired) == len(resolved) <= 1, "it may fire until two of the broker's counts have shown it"
    assert all(at <= 720 for at in resolved)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("restarted", "reported"),
    [(False, ["firing"]), (True, [])],
    ids=["the counts agree", "it seems to hold ten, five are counted"],
)
def test_a_consumer_that_hangs_is_reported_where_the_counts_agree(restarted: bool, reported: list[str]) -> None:
    """It holds five messages. After a restart of the collector nobody knows which five."""
    changes = slow(judged(in_steps(busy(1_200, hung_at_s=900, restarted=restarted), 3, 1_200), SETTINGS))
    assert [status for at, status in changes if at > 900] == reported


@pytest.mark.simulation
def test_a_count_that_was_never_reported_raises_no_doubt() -> None:
    """Consumers of other systems report whether they are connected, and no more."""
    changes = slow(judged(in_steps(busy(300, hung_at_s=60, restarted=False, shared=False), 1, 300), SETTINGS))
    assert [status for _, status in changes] == ["firing"]


@pytest.mark.simulation
def test_a_consumer_does_not_share_the_doubt_of_one_whose_name_continues_its_own() -> None:
    """Names may contain an @: `app` is in doubt since a count of its own, not since one of `app@host`."""
    mq, at_s = {"system": "activemq"}, {"app@host": 100, "app": 300}
    events: Events = [ev("queue_state", 0, attributes={"visible": 0, "in_flight": 6, "delayed": 0}) | mq]
    for name, from_s in at_s.items():
        for n in range(3):
            about = {"message_id": f"{name}-{n}"}
            events += [ev("sent", 1, **about) | mq, ev("received", 2, receive_count=1, consumer=name, **about) | mq]
        for at in range(5, 400, 10):
            state = {"connected": True, "prefetch": 5, "dispatched": 3 if at < from_s else 1}
            events.append(ev("consumer_state", at, consumer=name, attributes=state) | mq)
    run = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 400), SETTINGS)
    (memory,) = run.memory.queues.values()
    since = {key.rpartition("@")[0]: at - T0 for key, at in memory.since.items() if key.startswith("held_unconfirmed")}
    assert {name.partition(":")[2]: at // 10_000 * 10 for name, at in since.items()} == at_s


@pytest.mark.parametrize("made_up", ["soon", None, -1, [1], {"at": 1}])
def test_the_time_of_a_count_is_not_taken_from_the_sender(made_up: Any) -> None:
    """An attribute of that name is as good as any other that is not known."""
    state = {"connected": True, "prefetch": 5, "dispatched_at": made_up}
    events = [*busy(30, restarted=False), ev("consumer_state", 12, consumer=CONSUMER, attributes=state) | {"system": "activemq"}]
    run = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, 30), SETTINGS)
    assert run.snapshots[-1].queues[0].consumers[0].held
