"""Two processes that share a run: each test runs in one of them, whatever the order of its file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

def test_alone(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_each(n): pass

def test_with_a_service(service): pass
"""
SERVICE = """
import pytest

@pytest.fixture(scope="session", params=["one", "other"])
def service(request): return request.param
"""


def _start(folder: Path, claims: Path, *options: str) -> subprocess.Popen[str]:
    """Start one half of the tests in `folder`."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "tests.halves", f"--claims={claims}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen([*command, *options], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def test_each_test_runs_in_one_of_two_halves(tmp_path: Path) -> None:
    """A session fixture with parameters makes pytest run each file in several parts; none is left out or repeated."""
    folder, claims = tmp_path / "checkout", tmp_path / "claims"
    folder.mkdir()
    claims.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(SERVICE)
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(TESTS)
    halves = [_start(folder, claims), _start(folder, claims, "--backwards")]
    outputs = [half.communicate(timeout=120)[0] for half in halves]
    assert [half.returncode for half in halves] == [0, 0], outputs
    ran = re.findall(r"(test_[a-d])\.py::(\S+) PASSED", "".join(outputs))
    assert sorted(ran) == sorted(
        (f"test_{name}", test)
        for name in "abcd"
        for test in ("test_alone", "test_each[1]", "test_each[2]", "test_with_a_service[one]", "test_with_a_service[other]")
    )
    assert len(list(claims.glob("collected-*"))) == 1


def test_one_half_begins_where_the_other_ends(tmp_path: Path) -> None:
    """Alone, a half runs all files, in its own order."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
    output, _ = _start(tmp_path, tmp_path / "claims", "--backwards").communicate(timeout=120)
    assert re.findall(r"test_([ab])\.py::test_([xy]) PASSED", output) == [("b", "x"), ("b", "y"), ("a", "x"), ("a", "y")]


def test_a_half_without_the_configuration_of_the_tests_is_refused(tmp_path: Path) -> None:
    """Unregistered markers, warnings and tests that hang would pass."""
    folder, claims = tmp_path / "checkout", tmp_path / "claims"
    folder.mkdir()
    claims.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_a.py").write_text("def test_x(): pass\n")
    half = _start(folder, claims, "--claims", str(claims))
    half.communicate(timeout=120)
    assert half.returncode == pytest.ExitCode.USAGE_ERROR
