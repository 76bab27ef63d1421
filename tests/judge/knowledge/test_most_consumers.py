"""Nine of ten consumers report, and then all die or fail: what the tenth took before must not become the oldest message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
PER_S, WORKED_ON_S = 3, 4
DEATH_S, END_S = 480, 1_500


@pytest.fixture(scope="module", params=["die", "fail"])
def dying(request: pytest.FixtureRequest) -> Judged:
    """Judge every ten seconds, with exact counts every thirty. Instead of dying, all may begin to fail: they go on receiving."""
    fail = request.param == "fail"
    events: Events = []
    spans: list[tuple[float, float, float]] = []
    for i in range(PER_S * END_S):
        at = i / PER_S
        name = {"message_id": f"m{i}"}
        got = at + 1 if at < DEATH_S - WORKED_ON_S - 1 else END_S
        spans.append((at, got, got + WORKED_ON_S))
        events.append(ev("sent", at, **name))
        if i % 10 and got < END_S:
            events.append(ev("received", got, **name, receive_count=1, consumer=f"w{i % 10}"))
            events.append(ev("deleted", got + WORKED_ON_S, **name, consumer=f"w{i % 10}"))
    retried = [f"m{PER_S * DEATH_S + i}" for i in range(9)] if fail else []
    for at in range(DEATH_S + 60, END_S, 20):
        for i, message_id in enumerate(retried):
            about = {"message_id": message_id, "consumer": f"w{i + 1}"}
            events.append(ev("received", at, **about, receive_count=1 + (at - DEATH_S) // 20))
            events.append(ev("released", at + 15, **about))
    for at in range(30, END_S, 30):
        retries = len(retried) if at > DEATH_S + 60 and 0 < at % 20 <= 15 else 0
        counts = {
            "visible": sum(sent <= at < got for sent, got, _ in spans) - retries,
            "in_flight": sum(got <= at < gone for _, got, gone in spans) + retries,
        }
        events.append(ev("queue_state", at, attributes={**counts, "delayed": 0, "visibility_timeout_s": 30}))
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, END_S))


@pytest.mark.simulation
def test_the_age_is_at_most_that_of_the_backlog(dying: Judged) -> None:
    """In a growing backlog the messages that were taken unseen are soon a share that no count can show."""
    for snapshot in dying.snapshots:
        at_s, (queue,) = (snapshot.at_ms - T0) / 1000, snapshot.queues
        if at_s < DEATH_S + 60:
            continue
        oldest = queue.oldest_ms.get("all")
        assert "all" not in queue.exact_ages, at_s
        assert oldest is None or oldest >= T0 + (DEATH_S - WORKED_ON_S - 2) * 1000, at_s
    last = dying.snapshots[-1]
    assert (last.at_ms - last.queues[0].oldest_ms["all"]) / 1000 > 0.9 * (END_S - DEATH_S)


@pytest.mark.simulation
def test_the_telemetry_is_still_known_to_be_partial(dying: Judged) -> None:
    """A count of what only waits cannot show that every consumer reports."""
    bases = {(s.at_ms - T0) // 1000: s.queues[0].basis for s in dying.snapshots}
    assert {basis for at_s, basis in bases.items() if at_s >= DEATH_S + 60} == {"partial"}
