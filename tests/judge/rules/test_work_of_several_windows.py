"""Work that takes several visibility windows: the timeout that is advised is long enough for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.judge.driving import in_steps, judged

WINDOW_S, UNTIL_S = 30, 600

Events = list[dict[str, Any]]


def worked(work_s: int, queue: str) -> Events:
    """Return a message every 20 s, received again whenever a window ends until the first consumer finishes it."""
    out = [ev("queue_state", 0, queue, attributes={"visibility_timeout_s": WINDOW_S})]
    for n, at in enumerate(range(0, UNTIL_S - work_s, 20)):
        about: dict[str, Any] = {"message_id": f"m{n}"} | ({"group": f"g{n}"} if queue.endswith(".fifo") else {})
        out.append(ev("sent", at, queue, **about))
        for i, received in enumerate(range(at + 1, at + 1 + work_s, WINDOW_S)):
            out.append(ev("received", received, queue, receive_count=i + 1, consumer=f"w{i}", **about))
        # SQS refuses to delete a message of a FIFO queue after its window.
        ended = "outlived" if queue.endswith(".fifo") else "deleted"
        out.append(ev(ended, at + 1 + work_s, queue, consumer="w0", **about))
    return sorted(out, key=lambda e: e["at"])


@pytest.mark.simulation
@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("work_s", [100, 200])
def test_the_timeout_that_is_advised_is_longer_than_the_work(work_s: int, queue: str) -> None:
    """Of a message that was received four times meanwhile, the last receive was only moments before its end."""
    steps = in_steps(worked(work_s, queue), 5, UNTIL_S)
    (found,) = judged(steps, shards=2, restart=True).firing("WindowTooShort")
    assert work_s <= found.evidence["longest_work_s"] <= 1.2 * work_s
    assert work_s < found.evidence["timeout_that_fits_s"] <= 1.4 * work_s
