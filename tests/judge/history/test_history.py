"""The judge's table of samples: what it keeps, drops, and reads back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import QueueName
from streaming.judge.history.history import AGE_TO_GAP, DENSE_MS, History
from streaming.judge.history.sample_rows import SampleRows, read_rows
from streaming.judge.history.window import COLUMN, FIELDS, Ints

T0 = 1_700_000_000_000
A, B, C = (QueueName("aws_sqs", "", name) for name in "abc")


def row(value: int) -> list[int]:
    """Return a sample with `value` in every field."""
    return [1, *([value] * (len(FIELDS) - 1))]


def table(*values: int) -> Ints:
    """A row per queue."""
    return np.array([row(value) for value in values], dtype=np.int64).reshape(-1, len(FIELDS))


@pytest.mark.simulation
def test_samples_are_dense_at_first_and_ever_farther_apart() -> None:
    """After two days in steps of ten seconds no gap exceeds a tenth of its age, and there are few samples."""
    history = History()
    for i in range(2 * 8_640):
        history.add(T0 + i * 10_000, [A], table(i))
    at = history.window(A).at
    now = int(at[-1])
    dense = at[at >= now - DENSE_MS]
    assert set(np.diff(dense)) == {10_000}
    gaps, ages = np.diff(at), now - at[:-1]
    assert (gaps <= np.maximum(10_000, 2 * ages // AGE_TO_GAP)).all()
    assert len(at) < 250


def test_a_queue_that_comes_later_or_goes_takes_no_other_with_it() -> None:
    """Rows are found by name, whatever was added and dropped in between."""
    history = History()
    history.add(T0, [A, B], table(1, 2))
    history.add(T0 + 10_000, [A, B, C], table(3, 4, 5))
    history.add(T0 + 20_000, [A, C], table(6, 7))
    assert history.window(A)["sent"].tolist() == [1, 3, 6]
    assert history.window(C)["sent"].tolist() == [5, 7]
    assert len(history.window(B)) == 0
    assert history.recent(C)["sent"].tolist() == [5, 7]


def test_until_when_events_had_been_read_is_kept_with_each_sample() -> None:
    """Also of the present, and after a restart; the samples of a release that did not store it were read without delay."""
    history = History()
    history.add(T0, [A], table(1))
    history.add(T0 + 10_000, [A], table(2), delay_ms=4_000)
    history = History.from_bytes(history.to_bytes())
    history.add(T0 + 12_000, [A], table(3), delay_ms=5_000)
    window = history.window(A)
    assert (history.read_until(window.at) - T0).tolist() == [0, 6_000, 7_000]
    assert (history.read_until(window.at[2:]) - T0).tolist() == [7_000]


def test_a_queue_to_which_nothing_happens_is_stored_once() -> None:
    """And no more than a quarter of the rows of a busy one are those of samples that are gone."""
    names = [QueueName("s", "", f"q{i:03d}") for i in range(200)]
    history, values = History(), table(*range(200))
    for i in range(200):
        values[:10, COLUMN["settled"]] += 1
        history.add(T0 + i * 10_000, names, values)
    assert len(names) + 10 * len(history) <= len(history._rows) + 10 <= 1.25 * (len(names) + 10 * len(history)) + 10
    for place in (0, 9, 10, 199):
        window = history.window(names[place])
        changes = (window.at - T0) // 10_000 + 1 if place < 10 else 0
        assert (window["settled"] == place + changes).all()
        assert (window["sent"] == place).all()


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from([3_000, 10_000, 60_000]), st.lists(st.integers(0, 1), min_size=3, max_size=3)), max_size=150
    )
)
def test_each_sample_reads_as_it_was_added(steps: list[tuple[int, list[int]]]) -> None:
    """However many samples share a row, and rows are dropped in between."""
    history, now = History(), T0
    added: dict[QueueName, dict[int, int]] = {A: {}, B: {}, C: {}}
    for after_ms, values in steps:
        now += after_ms
        history.add(now, [A, B, C], table(*values))
        for name, value in zip((A, B, C), values, strict=True):
            added[name][now] = value
            window = history.window(name)
            assert window["sent"].tolist() == [added[name][at] for at in window.at.tolist()]
        history.gather([A, C])
        recent = history.recent(C)
        assert recent["sent"].tolist() == [added[C][at] for at in recent.at.tolist()]


def test_rows_have_32_bits_per_number_of_messages_until_one_needs_more() -> None:
    """Then all of them have 64, also those stored before."""
    rows, none = SampleRows(), np.zeros(0, dtype=np.int32)
    first = rows.add(table(7), none, table())
    narrow = rows.table.itemsize
    assert narrow < 0.6 * 8 * len(FIELDS)
    second = rows.add(table(2**31), first, table(7))
    assert rows.table.itemsize > narrow
    assert np.array_equal(read_rows(rows.table[[*first, *second]]), table(7, 2**31))


def test_a_number_that_needs_more_than_32_bits_widens_what_is_stored() -> None:
    """It is exact, and so are the samples before and after it."""
    history, sent = History(), [7, 2**31, -1, 2**40]
    for i, value in enumerate(sent):
        history.add(T0 + i * 10_000, [A, B], table(value, i))
    history.add(T0 + 32_000, [A, B], table(2**50, 4))
    assert history.window(A)["sent"].tolist() == [*sent, 2**50]
    history.gather([A, B])
    assert history.recent(A)["sent"].tolist() == [*sent, 2**50]
    assert history.recent(B)["sent"].tolist() == [0, 1, 2, 3, 4]
    _, values = history.stretch(T0, np.array([0, 1]))
    assert values("sent", range(5)).T.tolist() == [[*sent, 2**50], [0, 1, 2, 3, 4]]


@settings(max_examples=50)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 400), st.sets(st.sampled_from("abcd"), min_size=1), st.integers(0, 2**50)), max_size=40
    )
)
def test_what_is_read_back_is_what_was_kept(steps: list[tuple[int, set[str], int]]) -> None:
    """Packed as differences between samples, nothing is lost, whatever queues come and go."""
    history, now = History(), T0
    for seconds, names, value in steps:
        now += seconds * 1000
        queues = [QueueName("s", "", name) for name in sorted(names)]
        history.add(now, queues, table(*(value + i for i in range(len(queues)))))
    again = History.from_bytes(history.to_bytes())
    for name in "abcd":
        kept = [s for s in history.window(QueueName("s", "", name)).at.tolist() if s <= history.last_at]
        window = again.window(QueueName("s", "", name))
        assert window.at.tolist() == kept
        assert np.array_equal(window.values, history.window(QueueName("s", "", name)).values[: len(kept)])


def test_a_damaged_history_is_refused() -> None:
    """It is refused instead of misread."""
    history = History()
    history.add(T0, [A], table(1))
    blob = history.to_bytes()
    with pytest.raises(ValueError, match="damaged"):
        History.from_bytes(blob[:-4])
