"""Processes that share a run: each test runs in one of them, whatever the order of its file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel import ORDERS

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
    """Start a process that runs tests of `folder`."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "tests.parallel", f"--claims={claims}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen([*command, *options], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def test_each_test_runs_in_one_of_the_processes(tmp_path: Path) -> None:
    """A session fixture with parameters makes pytest run each file in several parts; none is left out or repeated."""
    folder, claims = tmp_path / "checkout", tmp_path / "claims"
    folder.mkdir()
    claims.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(SERVICE)
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(TESTS)
    processes = [_start(folder, claims, f"--order={order}") for order in ORDERS]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    ran = re.findall(r"(test_[a-d])\.py::(\S+) PASSED", "".join(outputs))
    assert sorted(ran) == sorted(
        (f"test_{name}", test)
        for name in "abcd"
        for test in ("test_alone", "test_each[1]", "test_each[2]", "test_with_a_service[one]", "test_with_a_service[other]")
    )
    assert len(list(claims.glob("collected-*"))) == 1


@pytest.mark.parametrize(
    ("order", "files"), [("services-first", "bdac"), ("services-last", "acbd"), ("services-first-backwards", "dbca")]
)
def test_a_process_runs_its_own_kind_of_files_first(tmp_path: Path, order: str, files: str) -> None:
    """Alone, it runs all files; the tests of a file stay in their order."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("import pytest\n\n@pytest.fixture(scope='session')\ndef services(): pass\n")
    for name in "ac":
        (tmp_path / f"test_{name}.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
    for name in "bd":
        (tmp_path / f"test_{name}.py").write_text("def test_x(): pass\ndef test_y(services): pass\n")
    output, _ = _start(tmp_path, tmp_path / "claims", f"--order={order}").communicate(timeout=120)
    assert re.findall(r"test_([a-d])\.py::test_([xy]) PASSED", output) == [(name, test) for name in files for test in "xy"]


def test_a_process_without_the_configuration_of_the_tests_is_refused(tmp_path: Path) -> None:
    """Unregistered markers, warnings and tests that hang would pass."""
    folder, claims = tmp_path / "checkout", tmp_path / "claims"
    folder.mkdir()
    claims.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_a.py").write_text("def test_x(): pass\n")
    process = _start(folder, claims, "--claims", str(claims))
    process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.USAGE_ERROR
