"""Garbage collection is paused during a batch and resumes afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from streaming.core.gc_pause import gc_paused


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
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
