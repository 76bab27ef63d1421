"""The module for Workers: its rules in Node, and its behaviour in workerd when telemetry fails."""

from __future__ import annotations

import subprocess

import pytest

from tests.services.node import Node
from tests.sources.cloudflare.worker_script import SCRIPTS, run_script

SUITES = sorted(path.name for path in SCRIPTS.glob("*.test.mjs"))


@pytest.mark.parametrize("suite", SUITES)
def test_suite(node: Node, suite: str) -> None:
    """Every test of the suite passes; failures are printed as Node reports them."""
    command = [node.executable, "--test", "--test-reporter=spec", str(SCRIPTS / suite)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{suite}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert "tests 0" not in done.stdout, f"{suite} has no test"


def test_the_script_that_measures_the_wrapper_runs(node: Node) -> None:
    """Batches of each size, bare and wrapped, with and without the flag. It is run by hand: see docs/cloudflare.md."""
    rows = run_script(node, "overhead.mjs", "1", timeout_s=90)
    assert {(row["flag"], row["size"]) for row in rows} == {(f, s) for f in (True, False) for s in (1, 10, 100)}
    assert all(row["wrappedMs"] > 0 for row in rows), rows
