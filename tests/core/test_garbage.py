"""Garbage is not looked for while a batch is worked on, and is afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from streaming.core.garbage import not_collecting


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_goes_on_after_the_block_and_after_a_failure_in_it() -> None:
    """Also one block in another."""
    with not_collecting(), not_collecting():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="wrong"), not_collecting():
        raise ValueError("something went wrong")
    assert gc.isenabled()


def test_who_switched_it_off_keeps_it_off() -> None:
    """That was somebody's own choice."""
    gc.disable()
    with not_collecting():
        pass
    assert not gc.isenabled()
