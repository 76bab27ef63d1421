"""A noisy group of a fair queue of which only the consumers report: how large its backlog is nobody knows."""

from __future__ import annotations

import pytest

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
