"""Consumers that report, without their producers and without a collector: what they do not receive is not known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

GONE_S, UNTIL_S = 200, 600


def worked(until_s: int, **more: Any) -> list[dict[str, Any]]:
    """Return a message every five seconds, received and deleted."""
    out = []
    for i, at in enumerate(range(0, until_s, 5)):
        about = {"message_id": f"m{i}", "consumer": "worker", **more}
        out.append(ev("received", at + 1, receive_count=1, sent_at=T0 + 1000 * at, **about))
        out.append(ev("deleted", at + 2, **about))
    return out


SETTINGS_ONLY = [ev("queue_state", at, attributes={"visibility_timeout_s": 30}) for at in range(0, UNTIL_S, 60)]


@pytest.mark.parametrize("settings", [[], SETTINGS_ONLY], ids=["no collector", "only settings are reported"])
def test_consumers_that_are_gone_leave_nothing_known(settings: list[dict[str, Any]]) -> None:
    """Five minutes after the last delivery the status is unknown."""
    events = sorted([*worked(GONE_S), *settings], key=lambda e: e["at"])
    found = {(s.at_ms - T0) // 1000: s.queues[0] for s in judged(in_steps(events, 10, UNTIL_S)).snapshots if s.at_ms > T0}
    assert {queue.basis for queue in found.values()} == {"consumers"}
    last_s = GONE_S - 5 + 2
    assert {queue.status for at, queue in found.items() if at <= last_s + 300} == {"ok"}
    assert {queue.status for at, queue in found.items() if at > last_s + 300} == {"unknown"}


def test_consumers_that_come_back_are_ok_again() -> None:
    """One delivery is enough."""
    back = [ev("received", UNTIL_S - 15, message_id="last", consumer="worker", receive_count=1)]
    assert judged(in_steps([*worked(GONE_S), *back], 10, UNTIL_S)).snapshots[-1].queues[0].status == "ok"


def test_a_dead_letter_queue_needs_no_consumer() -> None:
    """An operator looked into it once."""
    moved = [ev("queue_state", 0, attributes={"dead_letter_queue": "dead"}), *worked(100, queue="dead")]
    found = judged(in_steps(sorted(moved, key=lambda e: e["at"]), 10, UNTIL_S)).snapshots[-1].queues
    assert {queue.queue: queue.status for queue in found}["dead"] == "ok"
