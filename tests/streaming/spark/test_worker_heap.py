"""What a worker has loaded is passed over when garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import pytest

from streaming.spark import worker_heap


@pytest.fixture(autouse=True)
def _heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_heap, "_left", 2)
    gc.unfreeze()
    yield
    gc.unfreeze()


def _walked(objects: Sequence[object]) -> int:
    """How many of `objects` a collection walks through. Frozen ones are not among those `gc` lists. Told object by object:
    the count of all that is frozen falls whenever another thread drops something."""
    listed = {id(found) for found in gc.get_objects()}
    return sum(id(one) in listed for one in objects)


def test_the_heap_is_frozen_before_the_first_two_tasks_and_then_left_alone() -> None:
    """What the first task imports is there at the second; what later tasks make must be collectable."""
    loaded = [[n] for n in range(1_000)]
    assert _walked(loaded) == len(loaded)
    worker_heap.spare_modules()
    imported = [[n] for n in range(1_000)]
    assert (_walked(loaded), _walked(imported)) == (0, len(imported))
    worker_heap.spare_modules()
    later = [[n] for n in range(1_000)]
    assert (_walked(imported), _walked(later)) == (0, len(later))
    worker_heap.spare_modules()
    assert (_walked(imported), _walked(later)) == (0, len(later))
