"""Garbage collection is paused during a batch, resumes afterwards, and skips what the batch left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from streaming.core.gc_pause import BatchHeap, gc_paused


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def test_it_goes_on_after_the_block_and_after_a_failure_in_it() -> None:
    """This also holds for nested blocks."""
    with gc_paused(), gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="wrong"), gc_paused():
        raise ValueError("something went wrong")
    assert gc.isenabled()


def test_who_switched_it_off_keeps_it_off() -> None:
    """It was disabled elsewhere on purpose."""
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.slow
def test_what_a_batch_left_is_not_looked_at_again() -> None:
    """Collections found nothing in the evaluations of ten thousand queues, and took half a second each."""
    heap = BatchHeap()
    with gc_paused():
        left: list[list[int]] = [[]]
        heap.freeze()
    assert not any(one is left for one in gc.get_objects())


@pytest.mark.slow
def test_a_cycle_is_collected_at_last() -> None:
    """One that was frozen goes with the next collection of everything; one of a batch that failed, after the first batch."""
    failed = weakref.ref(_Cycle())
    heap = BatchHeap(collected_every=3)
    with gc_paused():
        heap.freeze()
    assert failed() is None
    with gc_paused():
        frozen = weakref.ref(_Cycle())
        heap.freeze()
    gc.collect()
    assert frozen() is not None
    for _ in range(2):
        with gc_paused():
            heap.freeze()
    assert frozen() is None
