"""docs/coverage.md and docs/sqs.md: receives that nobody reported show up in the API."""

from __future__ import annotations

from pathlib import Path

from tests.core.driving import event
from tests.judge.driving import in_steps, judged
from tests.sinks.http.conftest import StartService

DOCS = Path(__file__).parents[3] / "docs"


def test_a_jump_of_the_receive_count_is_in_the_places_that_the_pages_name(start: StartService) -> None:
    """A console polled a message twice between two reported receives."""
    events = [event("sent", 1_000, message_id="m1")]
    events += [
        event("received", 2_000, message_id="m1", receive_count=1, invisible_until=events[0]["at"] + 4_000),
        event("received", 60_000, message_id="m1", receive_count=4),
    ]
    snapshot = judged(in_steps(events, 10, 70)).snapshots[-1]
    queue = start(snapshot).client.get("/api/v1/queue?queue=orders").json()["queue"]
    assert queue["totals"]["unseen_receives"] == 2
    [message] = queue["messages"]
    assert [attempt["receive_count"] for attempt in message["attempts"] if attempt["what"] == "received"] == [1, 4]
    for page in ("coverage.md", "sqs.md"):
        text = (DOCS / page).read_text()
        assert "`queue.totals.unseen_receives`" in text
        assert "`queue.messages[].attempts[].receive_count`" in text
