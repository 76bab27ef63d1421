"""A queue_state equal to the previous one is applied without reading the old one, and the table is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.settings import QueueName, Settings
from streaming.core.state.queue_table import REPORTED, QueueTable
from streaming.core.state.queue_text import report_text
from tests.core.driving import event, run_steps

VALUES = st.fixed_dictionaries(
    {},
    optional={
        "visible": st.integers(0, 2),
        "in_flight": st.integers(0, 1),
        "kind": st.sampled_from(["standard", "fifo"]),
        "paused": st.booleans(),
        "visibility_timeout_s": st.sampled_from([30, 900]),
        "redrive_task": st.just({"moved": 1}),
    },
)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.one_of(VALUES, st.just({"visible": 1, "in_flight": 0}))), max_size=12), st.booleans()
)
def test_a_repeated_count_leaves_the_table_as_reading_it_would(reported: list[tuple[int, dict[str, Any]]], stored: bool) -> None:
    """Attributes, their times and the derived columns are equal, whatever the order of counts."""
    quick, slow = QueueTable(), QueueTable()
    for table in (quick, slow):
        table.add([QueueName("aws_sqs", "eu-west-1", "orders")])
    for at, attributes in reported:
        if stored:
            quick.attribute_texts()
        if not repeats(quick, at, attributes):
            quick[0].learn(at, attributes)
        slow[0].learn(at, attributes)
    assert quick.record(0) == slow.record(0)
    assert [int(quick.column(name)[0]) for name in REPORTED] == [int(slow.column(name)[0]) for name in REPORTED]


def repeats(table: QueueTable, at: int, attributes: dict[str, Any]) -> bool:
    """Report the attributes of the only queue at a time, and return whether that was a repeat."""
    return bool(table.repeat(np.array([0]), np.array([at]), np.array([at]), [report_text(attributes).encode()])[0])


def test_a_count_that_says_the_same_is_a_repeat() -> None:
    """A state that omits something, comes earlier, or has another value is not a repeat."""
    table = QueueTable()
    table.add([QueueName("aws_sqs", "eu-west-1", "orders")])
    table[0].learn(1_000, {"visible": 1, "in_flight": 0})
    table.attribute_texts()
    assert not repeats(table, 2_000, {"visible": 1})
    assert not repeats(table, 1_000, {"visible": 1, "in_flight": 0})
    assert not repeats(table, 2_000, {"visible": 1, "in_flight": 2})
    assert repeats(table, 2_000, {"visible": 1, "in_flight": 0})
    assert table[0].attributes == {"visible": (2_000, 1), "in_flight": (2_000, 0)}


def test_reports_on_several_queues_are_compared_each_with_its_own() -> None:
    """Also where one of them was changed in this step and is not written yet."""
    table = QueueTable()
    table.add([QueueName("aws_sqs", "eu-west-1", name) for name in ("orders", "invoices", "mail")])
    for number in range(3):
        table[number].learn(1_000, {"visible": number})
    table.attribute_texts()
    table[1].learn(1_500, {"visible": 9})
    texts = [report_text({"visible": visible}).encode() for visible in (0, 9, 1)]
    at = np.array([2_000, 2_000, 2_000])
    same = table.repeat(np.arange(3), at, at, texts)
    assert same.tolist() == [True, False, False]
    assert table.column("last_state_at").tolist() == [2_000, 1_500, 1_000]
    assert table.column("visible_counted_at").tolist() == [2_000, 1_500, 1_000]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), VALUES), min_size=1, max_size=20))
def test_reports_of_one_step_leave_what_each_in_a_step_of_its_own_would(reported: list[tuple[int, int, dict[str, Any]]]) -> None:
    """Several on each of several queues, in any order of time, repeated or not."""
    names = ("orders", "invoices", "mail")
    events = [event("queue_state", at * 1_000, names[n], attributes=attributes) for n, at, attributes in reported]
    chosen = Settings(now_is_event_time=True)
    together = run_steps([(10_000, events)], chosen)[-1]
    apart = run_steps([(10_000, [one]) for one in events], chosen)[-1]
    for name in together.queues:
        assert together.queues[name].attributes == apart.queues[name].attributes
        assert together.queues[name].last_state_at == apart.queues[name].last_state_at


def test_queues_of_one_template_share_their_text_until_one_differs() -> None:
    """Also after the table was stored and read, and in a table of a format in which every queue had a text of its own."""
    table = QueueTable()
    table.add([QueueName("aws_sqs", "eu-west-1", name) for name in ("orders", "invoices", "mail")])
    for number in range(3):
        table[number].learn(1_000, {"visible": 0})
    assert len(table.attribute_texts().texts) == 1
    table = QueueTable.unpack(table.pack())
    table[1].learn(2_000, {"visible": 7})
    found = table.attribute_texts()
    assert (len(found.texts), found.text(0) == found.text(2), found.text(0) == found.text(1)) == (2, True, False)
    columns = table.pack()
    each = [found.text(place) for place in range(3)]
    columns["q.attributes.of"] = np.arange(3, dtype=np.int32)
    columns["q.attributes.lengths"] = np.array([len(text) for text in each], dtype=np.int32)
    columns["q.attributes.bytes"] = np.frombuffer(b"".join(each), dtype=np.uint8)
    read = QueueTable.unpack(columns)
    assert len(read.attribute_texts().texts) == 2
    assert [read[number].attributes["visible"] for number in range(3)] == [(1_000, 0), (2_000, 7), (1_000, 0)]
