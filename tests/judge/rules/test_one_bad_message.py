"""A single message that comes back again and again is a poison message: neither its consumers fail, nor does the queue lag."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.settings import Settings
from tests.core.driving import event
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

STATE = event("queue_state", 0, attributes={"kind": "standard", "visibility_timeout_s": 30})
BAD_FROM_S, UNTIL_S = 600, 2400


def good(every_s: float, until_s: int = UNTIL_S) -> list[dict[str, Any]]:
    """Return messages that are finished a second after their send; the two consumers take turns."""
    events = []
    for n in range(int(until_s / every_s)):
        about, at = {"message_id": f"g{n}"}, int((n + 0.3) * every_s * 1000)
        got = {**about, "consumer": f"w{n % 2}"}
        events += [event("sent", at, **about), event("received", at + 100, receive_count=1, **got)]
        events.append(event("deleted", at + 1_000, **got))
    return events


def bad(message_id: str, from_s: int, consumer: str = "w0", every_s: float = 2.0) -> list[dict[str, Any]]:
    """Return a message that is given back at once a second after each of its receives."""
    events = [event("sent", from_s * 1000, message_id=message_id)]
    for n in range(int((UNTIL_S - from_s) / every_s)):
        at, about = int((from_s + every_s * n) * 1000) + 50, {"message_id": message_id, "consumer": consumer}
        events += [event("received", at, receive_count=n + 1, **about), event("released", at + 1_000, **about)]
    return events


def judge(*parts: list[dict[str, Any]]) -> Judged:
    events = sorted([STATE, *(e for part in parts for e in part)], key=lambda e: e["at"])
    return judged(in_steps(events, 5, UNTIL_S), Settings(now_is_event_time=True))


def fired(found: Judged) -> set[str]:
    return {c.finding.key.signal for c in found.changes if c.status == "firing" and not c.finding.folded}


@pytest.mark.parametrize("every_s", [2.0, 60.0])
def test_one_message_that_always_fails_is_a_poison_message(every_s: float) -> None:
    """It has most of the deliveries, and most of its consumer's, but all other messages are finished."""
    assert fired(judge(good(every_s), bad("bad", BAD_FROM_S))) == {"PoisonMessage"}


def test_an_old_bad_message_does_not_make_its_queue_lag() -> None:
    """It is the oldest message that waits, and grows older; nothing else waits."""
    found = judge(good(20.0), bad("bad", BAD_FROM_S))
    after = found.snapshots[BAD_FROM_S // 5 :]
    assert {queue.status for snapshot in after for queue in snapshot.queues} == {"ok"}


def test_consumers_that_fail_several_messages_are_still_reported_beside_a_bad_one() -> None:
    """Nothing is finished any more from half an hour on: the messages that came since then fail as well."""
    others = [bad(f"b{n}", 1800 + 10 * n, consumer=f"w{n % 2}") for n in range(10)]
    found = judge(good(5.0, 1800), bad("bad", BAD_FROM_S), *others)
    began = [c.at_ms for c in found.changes if c.finding.key.signal == "QueueFailing" and c.status == "firing"]
    assert len(began) == 1
    assert event("x", 1_800_000)["at"] < began[0] <= event("x", 1_900_000)["at"]


def test_new_messages_that_fail_at_first_show_that_the_consumer_is_broken() -> None:
    """They come back after a day, so none of them is a suspect: that they were received and not finished shows it."""
    failed = []
    for n in range(300):
        about, at = {"message_id": f"f{n}"}, 1_800_000 + 2_000 * n
        got = {**about, "consumer": "w1"}
        failed += [event("sent", at, **about), event("received", at + 100, receive_count=1, **got)]
        failed.append(event("released", at + 1_000, visible_at=event("x", at)["at"] + 86_400_000, **got))
    found = judge(good(5.0, 1800), bad("bad", BAD_FROM_S), failed)
    began = [c.at_ms for c in found.changes if c.finding.key.signal == "QueueFailing" and c.status == "firing"]
    assert len(began) == 1
    assert event("x", 1_800_000)["at"] < began[0] <= event("x", 1_900_000)["at"]
