"""What the totals of a queue say about windows that run out: whether the end of every delivery is seen."""

from __future__ import annotations

import numpy as np
import pytest

from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.windows import came_back, every_end_is_reported


def totals(**ends: int) -> Window:
    """Return samples of eleven minutes with these totals at the end."""
    values = np.zeros((2, len(FIELDS)), dtype=np.int64)
    for name, value in ends.items():
        values[1, COLUMN[name]] = value
    return Window(np.array([0, 660_000]), values)


@pytest.mark.parametrize(
    ("deleted", "failed", "again", "visibility_ms", "reported"),
    [
        pytest.param(300, 0, 0, 30_000, True, id="every delivery ended with a deletion"),
        pytest.param(300, 5, 5, 30_000, True, id="some failed, and came back"),
        pytest.param(270, 30, 0, 30_000, False, id="a tenth never came back: their deletions were lost"),
        pytest.param(99, 0, 0, 30_000, False, id="too few to rule out lost deletions"),
        pytest.param(300, 0, 0, 3_600_000, False, id="lost deletions would show only in an hour"),
        pytest.param(300, 0, 0, None, False, id="no window ever shows them"),
    ],
)
def test_the_end_of_every_delivery_is_seen(
    deleted: int, failed: int, again: int, visibility_ms: int | None, reported: bool
) -> None:
    past = totals(received=deleted + failed, touched=deleted + failed - again, deleted=deleted, departed=deleted, failed=failed)
    assert came_back(past, 0) == again
    assert every_end_is_reported(past, visibility_ms) is reported


def test_nothing_is_known_without_samples() -> None:
    assert not every_end_is_reported(totals().since(700_000), 30_000)
