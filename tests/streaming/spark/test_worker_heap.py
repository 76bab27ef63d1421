"""What a worker has loaded is passed over when garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from streaming.spark import worker_heap


@pytest.fixture(autouse=True)
def _heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_heap, "_left", 2)
    yield
    gc.unfreeze()


def test_the_heap_is_frozen_before_the_first_two_tasks_and_then_left_alone() -> None:
    """What the first task imports is there at the second; what later tasks make must be collectable."""
    gc.unfreeze()
    worker_heap.spare_modules()
    first = gc.get_freeze_count()
    assert first > 1_000
    imported = [[n] for n in range(5_000)]
    worker_heap.spare_modules()
    second = gc.get_freeze_count()
    assert second >= first + len(imported)
    more = [[n] for n in range(5_000)]
    worker_heap.spare_modules()
    assert gc.get_freeze_count() <= second
    assert len(more) == 5_000
