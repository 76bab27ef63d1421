"""Processes that share a run: each test runs in one of them, whatever the order of its file."""

from __future__ import annotations

import os
import re
import runpy
import signal
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
SLOW_SERVICE = """
import pytest, time

@pytest.fixture(scope="session")
def service():
    yield
    print("stopping", flush=True)
    time.sleep(1)
    print("stopped", flush=True)
"""
SERVICES = """
import pytest

@pytest.fixture(scope="session")
def services(): pass

@pytest.fixture(scope="session")
def browser(services): pass
"""


def _start(folder: Path, claims: Path, *options: str) -> subprocess.Popen[str]:
    """Start a process that runs tests of `folder`."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "tests.parallel", f"--claims={claims}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen([*command, *options], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
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
    assert [process.returncode for process in processes] == [0] * len(ORDERS), outputs
    ran = re.findall(r"(test_[a-d])\.py::(\S+) PASSED", "".join(outputs))
    assert sorted(ran) == sorted(
        (f"test_{name}", test)
        for name in "abcd"
        for test in ("test_alone", "test_each[1]", "test_each[2]", "test_with_a_service[one]", "test_with_a_service[other]")
    )
    assert len(list(claims.glob("collected-*"))) == 1


@pytest.mark.parametrize(
    ("order", "files"),
    [
        ("services-first", "egbdacf"),
        ("services-first-backwards", "gedbcaf"),
        ("services-last", "facbdeg"),
        ("services-last-backwards", "fcadbge"),
    ],
)
def test_a_process_runs_its_own_kind_of_files_first(tmp_path: Path, order: str, files: str) -> None:
    """Alone, it runs all files; the tests of a file stay in their order."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    e2e\n    simulation\n")
    (tmp_path / "conftest.py").write_text(SERVICES)
    heads = dict.fromkeys("ac", "def test_x(): pass\n") | dict.fromkeys("bd", "def test_x(services): pass\n")
    heads["g"] = "def test_x(browser): pass\n"
    heads |= {
        name: f"import pytest\n\n@pytest.mark.{marker}\ndef test_x(): pass\n"
        for name, marker in (("e", "e2e"), ("f", "simulation"))
    }
    for name, head in heads.items():
        (tmp_path / f"test_{name}.py").write_text(f"{head}def test_y(): pass\n")
    output, _ = _start(tmp_path, tmp_path / "claims", f"--order={order}").communicate(timeout=120)
    assert re.findall(r"test_([a-g])\.py::test_([xy]) PASSED", output) == [(name, test) for name in files for test in "xy"]


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


def test_services_are_stopped_at_sigterm(tmp_path: Path) -> None:
    """As when CI's time is up: a broker that goes on would hold its port and its memory. A second signal changes nothing."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(SLOW_SERVICE)
    (tmp_path / "test_a.py").write_text(
        "import time\n\ndef test_x(service):\n    print('started', flush=True)\n    time.sleep(60)\n"
    )
    process = _start(tmp_path, tmp_path / "claims", "-s")
    assert process.stdout is not None
    assert any("started" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    assert any("stopping" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert "stopped" in output
    assert process.returncode == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("ends_with", "code"),
    [(SystemExit, -signal.SIGTERM), (BrokenPipeError, -signal.SIGTERM), (KeyboardInterrupt, 0)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_processes_of_a_run_end_with_it(ends_with: type[BaseException], code: int) -> None:
    """Ctrl-C reaches them all by itself, and a second signal would interrupt the stopping of their services."""
    stopped = runpy.run_path(str(ROOT / ".ci" / "parallel.py"))["_stopped"]
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"])
    with pytest.raises(ends_with), stopped(process):
        raise ends_with
    assert process.returncode == code
