"""Noisy groups of a fair queue: where only the consumers report, among very many groups, and as the cause of slow consumers."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("quietest", [16, 29])
def test_one_flood_of_a_group_is_announced_once(quietest: int) -> None:
    """Its messages in flight swing around the limit of 30 while it crowds the queue; it is over when few are left."""
    events = [ev("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 300})]
    for wave in range(10):
        for n in range(32):
            about = {"message_id": f"m{wave}-{n}", "group": "loud", "consumer": "w"}
            events.append(ev("received", 10 + 30 * wave + n / 100, receive_count=1, **about))
            done_s = 20 if n >= quietest and wave < 9 else 31
            events.append(ev("deleted", 10 + 30 * wave + done_s + n / 100, **about))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 400))
    assert [status for _, signal, status, _ in found.changes_seen() if signal == "NoisyGroup"] == ["firing", "resolved"]


def test_a_noisy_group_with_nothing_in_flight_makes_nobody_wait() -> None:
    """Its messages came back, and it is noisy for five minutes more: the words say what is true meanwhile."""
    events = [ev("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 30})]
    for n in range(40):
        about = {"message_id": f"m{n}", "group": "loud"}
        events += [ev("sent", 1, **about), ev("received", 2, receive_count=1, consumer="w", **about)]
    (found,) = judged(in_steps(events, 10, 170)).firing("NoisyGroup")
    assert found.evidence["group_in_flight"] == 0
    assert found.summary == "Group loud crowded q until 2 min ago. It has nothing in flight now, and 40 unsettled messages."


@pytest.mark.parametrize("shards", [1, 3])
def test_the_noisy_group_of_a_queue_with_very_many_groups_is_found(shards: int) -> None:
    """Its messages are younger than those of more groups than a shard reports."""
    events = [ev("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 300})]
    events += [ev("sent", 1, message_id=f"m{n}", group=f"tenant-{n}") for n in range(300)]
    for n in range(60):
        about = {"message_id": f"loud{n}", "group": "loud"}
        events += [ev("sent", 20, **about), ev("received", 25, receive_count=1, consumer="c", **about)]
    few = Settings(now_is_event_time=True, groups_per_report=50)
    found = judged(in_steps(events, 5, 30), few, shards=shards)
    (noisy,) = found.firing("NoisyGroup")
    assert (noisy.key.group, noisy.evidence["group_in_flight"]) == ("loud", 60)


def crowd() -> list[dict[str, Any]]:
    """Return a queue of which one tenant's 40 jobs take 60 s, from 100 s on, on two consumers; others' take 2 s.

    Meanwhile `a` finishes others all the time, and `b` nothing.
    """
    events = [ev("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 300})]
    for n in range(120):
        about = {"message_id": f"m{n}", "group": f"tenant-{n}", "consumer": "a"}
        events += [ev("sent", 2 * n, message_id=f"m{n}", group=f"tenant-{n}"), ev("received", 2 * n, receive_count=1, **about)]
        events.append(ev("deleted", 2 * n + 2, **about))
    for n in range(40):
        events += job(f"job{n}", "loud", "ab"[n % 2], 100 + n / 40, 160 + n / 40)
    return events


def crowded(*others: dict[str, Any], until_s: int) -> Judged:
    """Judge every ten seconds what is known of it by then, and `others`."""
    known = sorted((e for e in [*crowd(), *others] if e["at"] <= ev("x", until_s)["at"]), key=lambda e: e["at"])
    return judged(in_steps(known, 10, until_s))


def job(message_id: str, group: str, consumer: str, from_s: float, until_s: float) -> list[dict[str, Any]]:
    """Return a message that takes until then."""
    about = {"message_id": message_id, "group": group, "consumer": consumer}
    sent = ev("sent", from_s, message_id=message_id, group=group)
    return [sent, ev("received", from_s, receive_count=1, **about), ev("deleted", until_s, **about)]


def test_a_noisy_group_explains_the_consumers_that_its_long_jobs_slow_down() -> None:
    """One of two has finished nothing else, but holds its job no longer than the other. The warning is about the group."""
    found = crowded(until_s=150)
    assert {f.key.consumer: f.folded for f in found.firing("SlowConsumer")} == {"a": "NoisyGroup", "b": "NoisyGroup"}
    (noisy,) = found.firing("NoisyGroup")
    assert (noisy.key.group, noisy.severity, noisy.evidence["slow_consumers"]) == ("loud", "warning", 2)
    assert noisy.summary.endswith(" 2 consumers have held some of its messages for much longer than is usual on this queue.")


def test_a_noisy_group_that_slowed_consumers_down_is_a_warning_until_it_ends() -> None:
    """Its jobs end one after the other; a notification that comes and goes with each would help nobody."""
    more = [e for n in range(40) for e in job(f"more{n}", "loud", "ab"[n % 2], 161 + n / 40, 400)]
    found = crowded(*more, until_s=230)
    began = [(c.at_ms, c.finding.severity) for c in found.changes if c.finding.key.signal == "NoisyGroup"]
    assert began == [(ev("x", 110)["at"], "info"), (ev("x", 140)["at"], "warning")]
    assert not crowded(*more, until_s=180).firing("SlowConsumer")
    (noisy,) = crowded(*more, until_s=180).firing("NoisyGroup")
    assert noisy.severity == "warning"
    assert "slow_consumers" not in noisy.evidence


def test_a_consumer_that_hangs_beside_a_noisy_group_is_announced() -> None:
    """It holds a job of the group for longer than any consumer that finishes something."""
    hung = job("hung", "loud", "c", 100, 900)
    assert {f.key.consumer for f in crowded(*hung, until_s=150).firing("SlowConsumer") if f.announced} == set()
    more = [e for n in range(40) for e in job(f"more{n}", "loud", "a", 161 + n / 40, 230)]
    found = crowded(*hung, *more, until_s=210)
    assert {f.key.consumer: f.folded for f in found.firing("SlowConsumer")} == {"a": "NoisyGroup", "c": None}


def test_a_slow_message_of_another_group_is_announced() -> None:
    """Its consumer finishes others meanwhile; the noisy group is in the evidence, and explains nothing."""
    found = crowded(*job("slow", "quiet", "a", 99, 900), until_s=150)
    (slow,) = [f for f in found.firing("SlowConsumer") if f.key.consumer == "a"]
    assert (slow.folded, slow.evidence["message_group"], slow.evidence["noisy_group"]) == (None, "quiet", "loud")
    assert "Group loud crowds the queue. The message does not belong to it." in slow.summary
