"""A short fuzzing run in every test run; `make fuzz` runs for as long as you choose."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.__main__ import fuzz, keep
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
"""The duration for each target."""
SEED = int(os.environ.get("FUZZ_SEED", "1"))
"""Every run has the same inputs, so that a failure comes from the change at hand; `make fuzz` draws its own seed."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TARGETS)
def test_malformed_input_breaks_no_reader(name: str, request: pytest.FixtureRequest) -> None:
    """Each input is read or refused as documented, within a time limit."""
    if name == "scan":
        request.getfixturevalue("compiled_scan")
    tried, problem = fuzz(TARGETS[name], SECONDS, SEED)
    assert tried > 10
    if problem is not None:
        pytest.fail(f"seed {SEED}, kept as {keep(name, problem[0])}: {problem[0][:300]!r}\n{problem[1]}", pytrace=False)
