"""A share of fuzzing in every run; `make fuzz` goes on for as long as it is reported."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.__main__ import fuzz, keep
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
"""For each target."""
SEED = int(os.environ.get("FUZZ_SEED", "1"))
"""The same bytes in every run, so that a failure is of the change at hand; `make fuzz` draws its own."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_what_reads_bytes(name: str) -> None:
    """Each is read or refused as documented, within bounds of time."""
    tried, problem = fuzz(TARGETS[name], SECONDS, SEED)
    assert tried > 10
    if problem is not None:
        pytest.fail(f"seed {SEED}, kept as {keep(name, problem[0])}: {problem[0][:300]!r}\n{problem[1]}", pytrace=False)
