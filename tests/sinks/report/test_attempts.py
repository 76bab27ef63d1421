"""Deliveries of a message, reconstructed from its events."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.report.attempts import message_story
from sources.wire import decode_records, encode_ndjson
from streaming.core.settings import QueueName
from tests.contract.replaying import ev, ms

QUEUE = QueueName("aws_sqs", "", "q")
WINDOW = ev("queue_state", 0, attributes={"visibility_timeout_s": 30})


def about_m(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
    """Build an event of message m."""
    return ev(kind, at_s, message_id="m", **fields)


CASES = [
    ("deleted in time", [about_m("received", 1), about_m("deleted", 5)], [(1, 5, "deleted")]),
    (
        "window ends by time",
        [about_m("received", 1), about_m("received", 60)],
        [(1, 31, "window ended"), (60, 90, "window ended")],
    ),
    ("a window of its own", [about_m("received", 1, invisible_until=ms(11)), about_m("sent", 0)], [(1, 11, "window ended")]),
    (
        "extended",
        [about_m("received", 1), about_m("extended", 20, invisible_until=ms(50)), about_m("deleted", 45)],
        [(1, 45, "deleted")],
    ),
    ("deleted too late", [about_m("received", 1), about_m("deleted", 45)], [(1, 45, "deleted after the window")]),
    (
        "given back",
        [about_m("received", 1), about_m("released", 3), about_m("received", 4), about_m("deleted", 5)],
        [(1, 3, "given back"), (4, 5, "deleted")],
    ),
    ("still held", [about_m("received", 90)], [(90, 100, "in flight")]),
    (
        "the timeout changed meanwhile",
        [about_m("received", 1), ev("queue_state", 20, attributes={"visibility_timeout_s": 5}), about_m("received", 60)],
        [(1, 31, "window ended"), (60, 65, "window ended")],
    ),
    (
        "a timeout as text of digits, as SQS answers",
        [about_m("received", 1), ev("queue_state", 20, attributes={"visibility_timeout_s": "5"}), about_m("received", 60)],
        [(1, 31, "window ended"), (60, 65, "window ended")],
    ),
    (
        "a timeout that the judge ignores",
        [about_m("received", 1), ev("queue_state", 20, attributes={"visibility_timeout_s": -5}), about_m("received", 60)],
        [(1, 31, "window ended"), (60, 90, "window ended")],
    ),
    ("never received", [about_m("sent", 1)], []),
    (
        "each event sent twice, one copy late",
        [about_m("received", 1), about_m("received", 1), about_m("released", 3), about_m("received", 4), about_m("released", 3)],
        [(1, 3, "given back"), (4, 34, "window ended")],
    ),
    ("deleted after the shown part", [about_m("received", 90), about_m("deleted", 110)], [(90, 100, "in flight")]),
]


@pytest.mark.parametrize(("events", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_deliveries_end_as_the_broker_ends_them(events: list[dict[str, Any]], expected: list[tuple[float, float, str]]) -> None:
    """A delivery ends by time, by a call, or not at all; the recording ends at 100 s."""
    table = decode_records([encode_ndjson([WINDOW, *events])]).events
    story = message_story(table, QUEUE, "m", ms(100))
    assert [(d.from_ms, d.to_ms, d.how) for d in story.deliveries] == [(ms(a), ms(b), how) for a, b, how in expected]


def test_the_same_message_id_in_another_scope_is_another_message() -> None:
    """Two accounts may use the same id; events without a message id belong to no message."""
    events = [about_m("sent", 1), about_m("sent", 2, scope="elsewhere"), ev("heartbeat", 3, consumer="c")]
    table = decode_records([encode_ndjson(events)]).events
    assert [h.at_ms for h in message_story(table, QUEUE, "m", ms(9)).timeline] == [ms(1)]


def test_only_the_latest_events_of_a_much_received_message_are_kept() -> None:
    """Events that are left out are counted."""
    table = decode_records([encode_ndjson([about_m("received", n) for n in range(300)])]).events
    story = message_story(table, QUEUE, "m", ms(400))
    assert (len(story.timeline), story.left_out) == (200, 100)
    assert story.timeline[-1].at_ms == ms(299)
