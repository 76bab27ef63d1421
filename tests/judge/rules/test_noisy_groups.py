"""A noisy group of a fair queue of which only the consumers report: how large its backlog is nobody knows."""

from __future__ import annotations

import pytest

from streaming.core.settings import Settings
from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

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
