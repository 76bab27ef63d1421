"""Queues that vanish leave their place in the judge's table of samples, unused, and nothing else."""

from __future__ import annotations

import json
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.core.settings import QueueName
from streaming.judge.history.history import History
from tests.judge.history.test_history import T0, table

NAMES = [QueueName("s", "", f"q{i:02d}") for i in range(40)]


def stored(history: History) -> tuple[list[list[str]], bytes]:
    """Return the stored names, a name for each place, and the packed samples."""
    blob = history.to_bytes()
    (length,) = struct.unpack_from("<I", blob)
    return json.loads(blob[4 : 4 + length])["queues"], blob[4 + length :]


def filled(samples: int) -> History:
    """Return samples of all of NAMES, ten seconds apart."""
    history = History()
    for i in range(samples):
        history.add(T0 + i * 10_000, NAMES, table(*(i + n for n in range(len(NAMES)))))
    return history


def test_samples_are_not_compressed_again_because_one_queue_vanished() -> None:
    """With ten thousand queues that took half a second in every step in which one of them vanished."""
    history = filled(20)
    _, before = stored(history)
    history.add(T0 + 200_000, NAMES[:5] + NAMES[6:], table(*range(39)))
    _, after = stored(history)
    assert after.startswith(before)
    assert len(history.window(NAMES[5])) == 0
    assert history.window(NAMES[6])["sent"].tolist() == [*range(6, 26), 5]


def test_the_places_of_many_vanished_queues_are_removed() -> None:
    """Also if they vanish one by one; the others keep their samples."""
    history, left = filled(20), list(NAMES)
    for i in range(12):
        left = [*left[:3], *left[4:]]
        history.add(T0 + 200_000 + i * 10_000, left, table(*(100 + i for _ in left)))
        names, _ = stored(history)
        assert len(left) <= len(names) <= len(left) * 8 / 7
    assert history.window(left[3])["sent"].tolist() == [*range(15, 35), *range(100, 112)]
    assert history.window(left[2])["sent"].tolist() == [*range(2, 22), *range(100, 112)]


def test_queues_that_come_and_go_for_months_take_no_more_room() -> None:
    """Every day a queue goes for good and another comes: what is stored does not grow, and no row stays behind."""
    history, now, sizes, rows = History(), T0, [], []
    for day in range(200):
        for _ in range(3):
            now += 8 * 3_600_000
            names = [QueueName("s", "", f"q{day + i:04d}") for i in range(20)]
            history.add(now, names, table(*(day + i for i in range(20))))
        places, packed = stored(history)
        assert len(places) <= 23
        sizes.append(len(packed))
        rows.append(len(history._rows))
    assert max(sizes[100:]) <= 1.1 * max(sizes[20:100])
    assert max(rows[100:]) <= 1.1 * max(rows[20:100])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from(range(15, 22))), st.booleans()), max_size=40))
def test_a_queue_that_comes_back_has_only_samples_since_then(steps: list[tuple[set[int], bool]]) -> None:
    """Whatever comes and goes, before and after a restart; the other queues have all of theirs, at the same times."""
    history = History()
    expected: dict[QueueName, dict[int, int]] = {}
    for i, (gone, restart) in enumerate(steps):
        now = T0 + i * 10_000
        names = [name for n, name in enumerate(NAMES[:22]) if n not in gone]
        history.add(now, names, table(*(100 * i + n for n in range(len(names)))))
        expected = {name: expected.get(name, {}) | {now: 100 * i + n} for n, name in enumerate(names)}
        if restart:
            again = History.from_bytes(history.to_bytes())
            assert again == history
            history = again
            history.add(now, names, table(*(100 * i + n for n in range(len(names)))))
        history.gather(names)
        for name in NAMES[:22]:
            of_name = expected.get(name, {})
            for window in (history.window(name), history.recent(name)):
                assert dict(zip(window.times, window["sent"].tolist(), strict=True)) == of_name
        at, values = history.stretch(T0, np.arange(len(names)))
        sent = values("sent", range(len(at)))
        for place, name in enumerate(names):
            assert dict(zip(at.tolist(), sent[:, place].tolist(), strict=True)) == {
                time: expected[name].get(time, 0) for time in at.tolist()
            }
