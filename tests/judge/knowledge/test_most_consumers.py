"""Some of the consumers report, and then all die or fail: what the others took before must not become the oldest message."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.knowledge.evidence import AGREEMENT_MS, Claim, Evidence
from streaming.judge.snapshot import Snapshot
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import Judged, in_steps, judged

Events = list[dict[str, Any]]
PER_S, WORKED_ON_S = 3, 4
DEATH_S, END_S = 480, 1_500


@pytest.fixture(scope="module", params=[(10, False), (2, True)], ids=["nine of ten, which die", "one of two, which fail"])
def dying(request: pytest.FixtureRequest) -> Judged:
    """Judge every ten seconds, with exact counts every thirty. Consumers that fail go on receiving: the same messages."""
    consumers, fail = request.param
    events: Events = []
    spans: list[tuple[float, float, float]] = []
    # The fewer were taken unseen, the sooner they are too small a part of the backlog.
    for i in range(PER_S * 330 if fail else 0, PER_S * END_S):
        at = i / PER_S
        name = {"message_id": f"m{i}"}
        got = at + 1 if at < DEATH_S - WORKED_ON_S - 1 else END_S
        spans.append((at, got, got + WORKED_ON_S))
        events.append(ev("sent", at, **name))
        if i % consumers and got < END_S:
            events.append(ev("received", got, **name, receive_count=1, consumer=f"w{i % consumers}"))
            events.append(ev("deleted", got + WORKED_ON_S, **name, consumer=f"w{i % consumers}"))
    retried = {f"m{PER_S * DEATH_S + i}": i % consumers for i in range(12)} if fail else {}
    for at in range(DEATH_S + 60, END_S, 30):
        for message_id, n in retried.items():
            if n:
                events.append(ev("received", at + n, message_id=message_id, consumer=f"w{n}", receive_count=(at - DEATH_S) // 30))
    for at in range(30, END_S, 30):
        retries = len(retried) if at > DEATH_S + 60 else 0
        counts = {
            "visible": sum(sent <= at < got for sent, got, _ in spans) - retries,
            "in_flight": sum(got <= at < gone for _, got, gone in spans) + retries,
        }
        events.append(ev("queue_state", at, attributes={**counts, "delayed": 0, "visibility_timeout_s": 30}))
    return judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, END_S))


def since_death(dying: Judged) -> list[Snapshot]:
    """Return what was published from a minute after the death or the failure on."""
    return [snapshot for snapshot in dying.snapshots if snapshot.at_ms >= T0 + 1000 * (DEATH_S + 60)]


@pytest.mark.simulation
def test_the_age_is_at_most_that_of_the_backlog(dying: Judged) -> None:
    """In a growing backlog the messages that were taken unseen are soon a share that no count can show."""
    for snapshot in since_death(dying):
        at_s, (queue,) = (snapshot.at_ms - T0) / 1000, snapshot.queues
        oldest = queue.oldest_ms.get("all")
        assert "all" not in queue.exact_ages, at_s
        assert oldest is None or oldest >= T0 + (DEATH_S - WORKED_ON_S - 2) * 1000, at_s
    last = next(s for s in reversed(dying.snapshots) if "all" in s.queues[0].oldest_ms)
    assert last.at_ms > T0 + 1_000_000
    assert last.at_ms - last.queues[0].oldest_ms["all"] > 0.9 * (last.at_ms - T0 - 1000 * DEATH_S)


@pytest.mark.simulation
def test_the_telemetry_is_still_known_to_be_partial(dying: Judged) -> None:
    """A count of what only waits cannot show that every consumer reports."""
    assert {snapshot.queues[0].basis for snapshot in since_death(dying)} == {"partial"}


@pytest.mark.parametrize("in_flight_agree", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_consumers_that_only_receive_show_that_all_report_by_the_numbers_in_flight(in_flight_agree: bool, settled: bool) -> None:
    """Complete telemetry that one late count contradicts, when all consumers begin to fail, is not partial for all the outage."""
    agreed_since, now = T0, T0 + AGREEMENT_MS
    agrees = Claim(agreed_since=agreed_since, agreed=10, contradicted_at=agreed_since - 30_000)
    contradicted = Claim(contradicted_at=now - 30_000)
    evidence = Evidence(tracked=agrees, ends=agrees if in_flight_agree else contradicted)
    last_settled_at = now if settled else agreed_since - 60_000
    shown = evidence.agreed_with_consumers(last_received_at=now, last_settled_at=last_settled_at, now=now)
    assert shown is (settled or in_flight_agree)
    assert not evidence.agreed_with_consumers(last_received_at=now - 1, last_settled_at=agreed_since - 60_000, now=now)
