"""The module for Workers: its rules in Node, and its manners in workerd with telemetry that does not work."""

from __future__ import annotations

import subprocess

import pytest

from tests.services.node import Node
from tests.sources.cloudflare.worker_script import SCRIPTS, run_script

SUITES = sorted(path.name for path in SCRIPTS.glob("*.test.mjs"))
MAX_ADDED_MS = 10.0  # a tenth of it on an idle machine


@pytest.mark.parametrize("suite", SUITES)
def test_suite(node: Node, suite: str) -> None:
    """Every test of the suite passes; what failed is printed as Node reports it."""
    command = [node.executable, "--test", "--test-reporter=spec", str(SCRIPTS / suite)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{suite}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert "tests 0" not in done.stdout, f"{suite} has no test"


def test_a_batch_of_a_hundred_takes_hardly_longer(node: Node) -> None:
    """The median batch, bare and wrapped in turns, with the telemetry endpoint answering at once."""
    rows = run_script(node, "overhead.mjs", "20", timeout_s=90)
    assert {(row["flag"], row["size"]) for row in rows} == {(f, s) for f in (True, False) for s in (1, 10, 100)}
    assert max(row["addedMs"] for row in rows) < MAX_ADDED_MS, rows
