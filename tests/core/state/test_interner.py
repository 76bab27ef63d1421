"""Names of groups and consumers, and looking them up by number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streaming.core.state.interner import FEW_TEXTS, text_of


@pytest.mark.parametrize("n", [0, 1, FEW_TEXTS, FEW_TEXTS + 1, 100])
@pytest.mark.parametrize("unnamed", [False, True])
def test_names_are_found_by_number_however_many_are_asked_for(n: int, unnamed: bool) -> None:
    """Few are looked up one by one, many by Arrow; -1 is null, also where nothing else is asked for."""
    texts = pa.array([f"name {i}" for i in range(10)], pa.string())
    numbers = np.array([-1 if unnamed or i % 3 == 2 else i % 10 for i in range(n)], dtype=np.int32)
    found = text_of(texts, numbers)
    assert found.type == texts.type
    assert found.to_pylist() == [None if number < 0 else f"name {number}" for number in numbers.tolist()]
