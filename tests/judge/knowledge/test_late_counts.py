"""Late counts of a queue whose consumers are busy: as many as ever are in flight, so that number matches whatever its age."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

Events = list[dict[str, Any]]

BURST = 300
SERVICE_S = 2.0
THREADS = 4


def draining(until_s: int, *, late_s: int) -> tuple[Events, list[tuple[float, float]]]:
    """Return the reports of the consumers and late counts, and when each message was sent and deleted.

    A burst, then a message a second; four threads take them in order, two a second.
    """
    sends = sorted([i / BURST for i in range(BURST)] + [1.0 + i for i in range(until_s)])
    out: Events = []
    lives: list[tuple[float, float]] = []
    for i, sent_s in enumerate(sends):
        taken_s = 2.0 + i // THREADS * SERVICE_S + i % THREADS * SERVICE_S / THREADS
        lives.append((sent_s, taken_s + SERVICE_S))
        name = f"m{i}"
        got = ev("received", taken_s, message_id=name, receive_count=1, consumer="w", sent_at=T0 + round(1000 * sent_s))
        out += [got, ev("deleted", taken_s + SERVICE_S, message_id=name, consumer="w")]
    for at_s in range(0, until_s, 30):
        then_s = max(at_s - late_s, 0)
        there = [(sent, gone) for sent, gone in lives if sent <= then_s < gone]
        busy = sum(then_s >= gone - SERVICE_S for _, gone in there)
        counts = {"visibility_timeout_s": 30, "visible": len(there) - busy, "in_flight": busy, "delayed": 0}
        out.append(ev("queue_state", at_s, attributes=counts))
    return sorted((e for e in out if e["at"] <= T0 + 1000 * until_s), key=lambda e: e["at"]), lives


@pytest.mark.parametrize("late_s", [0, 30, 60])
def test_no_age_is_above_the_true_one_while_a_backlog_drains(late_s: int) -> None:
    """A late count is of a larger backlog: messages that came since would seem to be as old as the count."""
    events, lives = draining(280, late_s=late_s)
    published = 0
    for snapshot in judged(in_steps(events, 10, 280)).snapshots:
        now_s = (snapshot.at_ms - T0) / 1000
        oldest_ms = snapshot.queues[0].oldest_ms.get("all") if snapshot.queues else None
        if oldest_ms is None:
            continue
        published += 1
        true_s = min((sent for sent, gone in lives if sent <= now_s < gone), default=now_s)
        assert (oldest_ms - T0) / 1000 >= true_s - 1, f"{now_s} s"
    assert published > 10


def burst_between_samples(until_s: int, *, share: float) -> Events:
    """Return the reports of a share of all messages, one a second and 300 within six seconds, and counts a minute late.

    Polls are not in step with the evaluations. One count is of the middle of the burst, which the samples around it enclose.
    """
    sends = sorted([float(s) for s in range(until_s)] + [301 + i / 50 for i in range(300)])
    lives, free_s = [], 0.0
    for sent_s in sends:
        free_s = max(free_s + 0.5, sent_s + 0.5)
        lives.append((sent_s, free_s, free_s + SERVICE_S))
    out: Events = []
    for i, (sent_s, taken_s, gone_s) in enumerate(lives):
        if i * share % 1 < share:
            about = {"message_id": f"m{i}", "consumer": "w"}
            out += [
                ev("sent", sent_s, **about),
                ev("received", taken_s, receive_count=1, **about),
                ev("deleted", gone_s, **about),
            ]
    for at_s in range(4, until_s, 30):
        then_s = max(at_s - 60, 0)
        visible = sum(sent <= then_s < taken for sent, taken, _ in lives)
        in_flight = sum(taken <= then_s < gone for _, taken, gone in lives)
        counts = {"visibility_timeout_s": 30, "visible": visible, "in_flight": in_flight, "delayed": 0}
        out.append(ev("queue_state", at_s, attributes=counts))
    return sorted((e for e in out if e["at"] <= T0 + 1000 * until_s), key=lambda e: e["at"])


@pytest.mark.simulation
@pytest.mark.parametrize(("share", "basis"), [(1.0, "messages"), (0.5, "partial")], ids=["all reported", "half reported"])
def test_a_late_count_of_the_middle_of_a_burst_shows_only_what_is_missing(share: float, basis: str) -> None:
    """What was tracked a minute before it is somewhere between two samples."""
    steps = in_steps(burst_between_samples(600, share=share), 10, 600)
    found = [s.queues[0].basis for s in judged(steps).snapshots if s.at_ms >= T0 + 400_000]
    assert set(found) == {basis}
