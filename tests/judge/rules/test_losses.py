"""MessageDropped: of a loss that is noticed late, and not of a message that was processed or moved as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.core.thresholds import Thresholds
from tests.core.driving import event
from tests.judge.driving import SETTINGS, Step, judged

MINUTE_MS, DAY_MS = 60_000, 86_400_000
MOVED_MS = 5 * DAY_MS


def test_a_dead_letter_that_is_past_retention_as_it_arrives_is_reported() -> None:
    """Its retention runs from the send, four days where it is kept; it was moved after five. It is reported for five minutes."""
    settings = {"retention_s": 14 * 86_400, "max_receive_count": 3, "dead_letter_queue": "d"}
    states = [event("queue_state", 0, attributes=settings), event("queue_state", 0, "d", attributes={"retention_s": 4 * 86_400})]
    steps: list[Step] = [
        (1_000, [*states, event("sent", 0, message_id="m")]),
        (MOVED_MS - MINUTE_MS, [event("received", MOVED_MS - MINUTE_MS, message_id="m", receive_count=3)]),
        (MOVED_MS, [event("dead_lettered", MOVED_MS, message_id="m", to_queue="d")]),
    ]
    steps += [(MOVED_MS + n * MINUTE_MS, []) for n in range(1, 30)]
    changes = judged(steps).changes_seen()
    lost = [(at - MOVED_MS, status) for at, signal, status, _ in changes if signal == "MessageDropped"]
    assert lost == [(0, "firing"), (5 * MINUTE_MS, "resolved")]


def test_what_a_shorter_retention_ends_is_reported() -> None:
    """However long ago its retention, by the new setting, has run out."""
    hour = 60 * MINUTE_MS
    steps: list[Step] = [(1_000, [event("queue_state", 0, attributes={"retention_s": 86_400})])]
    steps += [(1_000 * n, [event("sent", 1_000 * n, message_id=f"m{n}")]) for n in (2, 3)]
    steps += [(hour, [event("queue_state", hour, attributes={"retention_s": 300})]), (hour + MINUTE_MS, [])]
    assert {finding.key.message_id for finding in judged(steps).firing("MessageDropped")} == {"m2", "m3"}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("retry; delivery 4 of 4", "(its retries ran out; delivery 4 of 4)"),
        ("retry", "(its retries ran out)"),
        ("retries used up", "(retries used up)"),
    ],
)
def test_the_last_retry_of_a_worker_is_named_as_such(reason: str, words: str) -> None:
    """Its report says what the Worker asked for; the evidence keeps that."""
    about: dict[str, Any] = {"message_id": "m", "system": "cloudflare_queues"}
    events = [event("sent", 0, **about), event("received", 1_000, receive_count=4, **about)]
    (lost,) = judged([(3_000, [*events, event("dropped", 2_000, reason=reason, **about)])]).firing("MessageDropped")
    assert f"was dropped unprocessed {words} after 4 receives" in lost.evidence["summary"]
    assert lost.evidence["reason"] == reason


ENDS: list[dict[str, Any]] = [
    event("deleted", 20_000, message_id="m"),
    event("dead_lettered", 20_000, message_id="m", to_queue="d"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda one: str(one["type"]))
@pytest.mark.parametrize("lost_at_ms", [15_000, 20_000, 25_000])
@pytest.mark.parametrize("lost", ["dropped", "expired"])
def test_a_message_that_was_processed_or_moved_was_not_lost(end: dict[str, Any], lost_at_ms: int, lost: str) -> None:
    """Whichever is said to be earlier: only a delivery proves that an end was none."""
    life = [event("sent", 0, message_id="m"), event("received", 10_000, message_id="m", receive_count=1)]
    loss = event(lost, lost_at_ms, message_id="m")
    assert judged([(11_000, life), (30_000, [end]), (31_000, [loss]), (60_000, [])]).firing("MessageDropped") == []
    assert judged([(11_000, life), (31_000, [loss, end]), (60_000, [])]).firing("MessageDropped") == []
    assert len(judged([(11_000, life), (30_000, [loss]), (60_000, [])]).firing("MessageDropped")) == 1


PROOFS: list[dict[str, Any]] = [
    event("received", 40_000, message_id="m", receive_count=2),
    event("deleted", 40_000, message_id="m"),
]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda one: str(one["type"]))
@pytest.mark.parametrize("lost", ["dropped", "expired"])
def test_a_loss_that_is_disproved_ends_at_once(lost: str, proof: dict[str, Any]) -> None:
    """A later delivery proves that the message is still there; the others that were lost stay reported."""
    lives = [event("sent", 0, message_id=name) for name in "mn"]
    lives += [event("received", 10_000, message_id=name, receive_count=1) for name in "mn"]
    losses = [event(lost, 15_000, message_id=name) for name in "mn"]
    before = judged([(11_000, lives), (20_000, losses), (39_000, [])])
    assert {finding.key.message_id for finding in before.firing("MessageDropped")} == {"m", "n"}
    after = judged([(11_000, lives), (20_000, losses), (39_000, []), (41_000, [proof]), (60_000, [])])
    assert {finding.key.message_id for finding in after.firing("MessageDropped")} == {"n"}


@pytest.mark.parametrize("quiet_s", [120, 1_800])
def test_a_loss_is_announced_for_as_long_as_is_set(quiet_s: int) -> None:
    """Also when that is longer than the ten minutes for which its shard reports it."""
    lost = [event("sent", 0, message_id="m"), event("dropped", 1_000, message_id="m")]
    steps: list[Step] = [(1_000, lost), *((1_000 + n * MINUTE_MS, []) for n in range(1, 40))]
    changes = judged(steps, replace(SETTINGS, defaults=Thresholds(dropped_quiet_s=quiet_s))).changes_seen()
    assert [(at, status) for at, _, status, _ in changes] == [(1_000, "firing"), (1_000 + quiet_s * 1_000, "resolved")]


def test_a_loss_whose_deliveries_are_not_known_does_not_count_them() -> None:
    """Retries that ran out were deliveries, and where only the loss is reported nobody knows of any: neither is 0."""
    lost = [
        event("dropped", 1_000, message_id="dropped", reason="retries used up"),
        event("expired", 1_000, message_id="expired"),
    ]
    for found in judged([(2_000, lost)]).firing("MessageDropped"):
        assert "receive_count" not in found.evidence
        assert "receives" not in found.summary
    seen = [
        event("sent", 0, message_id="m"),
        event("sent", 0, message_id="n"),
        event("received", 500, message_id="n", receive_count=1),
    ]
    seen += [event("deleted", 600, message_id="n"), event("expired", 1_000, message_id="m")]
    (never,) = judged([(2_000, seen)]).firing("MessageDropped")
    assert never.evidence["receive_count"] == 0
    assert "expired unprocessed after 0 receives" in never.summary
