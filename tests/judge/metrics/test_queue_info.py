"""`queuewatch_queue_info`: the known facts of a queue as labels, with only the selected tags."""

from __future__ import annotations

from typing import Any

from sinks.prometheus import Exposition
from streaming.core.settings import Settings
from streaming.judge.metrics import samples
from tests.core.driving import event
from tests.judge.driving import judged

ATTRIBUTES: dict[str, Any] = {
    "kind": "standard",
    "visible": 0,
    "in_flight": 0,
    "dead_letter_queue": "orders-dlq",
    "tags": {"team": 'pay"ments', "cost-center": "42", "created-by": "somebody"},
}


def info(settings: Settings) -> tuple[list[dict[str, str]], str]:
    """Return the labels of its series of `orders`, and the line on /metrics."""
    said = judged([(1_000, [event("queue_state", 1_000, attributes=ATTRIBUTES)])], settings)
    snapshot = said.snapshots[-1]
    found = [s.labels for s in samples(snapshot, snapshot.at_ms) if s.name == "queuewatch_queue_info"]
    text = Exposition(process_metrics=False).render(snapshot, snapshot.at_ms).decode()
    (line,) = [
        line for line in text.splitlines() if line.startswith('queuewatch_queue_info{system="aws_sqs",scope_id="",queue="orders"')
    ]
    return [labels for labels in found if labels["queue"] == "orders"], line


def test_kind_and_dead_letter_queue_are_labels_and_no_tag_is_unless_chosen() -> None:
    """Tags may have any number of values, and each would be a series."""
    labels, line = info(Settings(now_is_event_time=True))
    about = {"kind": "standard", "dead_letter_queue": "orders-dlq", "is_dead_letter_queue": ""}
    assert labels == [{"system": "aws_sqs", "scope_id": "", "queue": "orders", **about}]
    assert line.endswith('kind="standard",dead_letter_queue="orders-dlq",is_dead_letter_queue=""} 1')


def test_a_dead_letter_queue_says_that_it_is_one() -> None:
    """An alert on waiting messages leaves it out, whichever way it is known to be one."""
    events = [
        event("queue_state", 1_000, attributes=ATTRIBUTES),
        event("queue_state", 1_000, queue="orders-dlq", attributes={"kind": "standard", "visible": 1}),
    ]
    said = judged([(1_000, events)], Settings(now_is_event_time=True))
    snapshot = said.snapshots[-1]
    found = {s.labels["queue"]: s.labels for s in samples(snapshot, snapshot.at_ms) if s.name == "queuewatch_queue_info"}
    assert found["orders-dlq"]["is_dead_letter_queue"] == "true"
    assert found["orders"]["is_dead_letter_queue"] == ""


def test_chosen_tags_are_labels() -> None:
    """Names are valid label names, and values are escaped."""
    labels, line = info(Settings(now_is_event_time=True, tag_labels=("team", "cost-center", "absent")))
    assert {name: value for name, value in labels[0].items() if name.startswith("tag_")} == {
        "tag_team": 'pay"ments',
        "tag_cost_center": "42",
    }
    assert line.endswith('tag_team="pay\\"ments",tag_cost_center="42"} 1')
