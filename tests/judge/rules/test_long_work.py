"""QueueMisconfigured (short_visibility): work that usually takes longer than the visibility timeout of its queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev, ms
from tests.judge.driving import SETTINGS, judged


@pytest.mark.parametrize(
    ("window", "fires"),
    [("as it is", True), ("extended", False), ("asked for", False)],
    ids=["as it is", "extended", "asked for"],
)
def test_work_may_take_longer_than_the_timeout_if_no_window_ends_before_it(window: str, fires: bool) -> None:
    """Consumers that extend, or that ask for a longer window with each receive, need no longer timeout."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    for n in range(12):
        at_s, about = 10 * n, {"message_id": f"m{n}", "consumer": f"w{n}"}
        asked: dict[str, Any] = {"invisible_until": ms(at_s + 300)} if window == "asked for" else {}
        events += [ev("sent", at_s, message_id=f"m{n}"), ev("received", at_s, receive_count=1, **about, **asked)]
        if window == "extended":
            events += [ev("extended", at_s + k, invisible_until=ms(at_s + k + 30), **about) for k in range(20, 100, 20)]
        events.append(ev("deleted", at_s + 100, **about))
    events.sort(key=lambda e: e["at"])
    steps = [(10_000 * k, [e for e in events if ms(10 * k - 10) < e["at"] <= ms(10 * k)]) for k in range(23)]
    found = [f for f in judged(steps, SETTINGS).firing("QueueMisconfigured") if f.key.part == "short_visibility"]
    assert bool(found) is fires
