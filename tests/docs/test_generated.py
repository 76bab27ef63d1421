"""Pages that a script writes are what the script would write today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    pytest.param("scripts/age_experiment.py", marks=pytest.mark.simulation),
    "scripts/metrics_page.py",
    "deploy/reference.py",
]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_generated_page_is_up_to_date(script: str) -> None:
    """`--check` finds no difference."""
    done = subprocess.run([sys.executable, script, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
