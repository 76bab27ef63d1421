"""The wheel: what is in it, and what an application that installs only the base package can do with it."""

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_ROOMS = ("streaming", "sources", "sinks", "alerts")
_NOT_FOR_THE_CORE = (
    "pyspark",
    "pandas",
    "boto3",
    "kafka",
    "pydantic",
    "httpx",
    "starlette",
    "stomp",
    "typer",
)
_BUILT = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("source")
    for room in _ROOMS:
        shutil.copytree(_ROOT / room, copy / room, ignore=_BUILT)
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        shutil.copy(_ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(copy), str(copy)], check=True)
    [built] = copy.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_four_rooms(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *_ROOMS], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert [name for name in listed if name not in packed and not name.endswith(".c")] == []


@pytest.mark.usefixtures("compiled_scan")
def test_the_wheel_holds_the_compiled_scan(wheel: Path) -> None:
    built = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("sources/wire/_scan.")]
    assert [Path(name).suffix for name in built] == [".so"]


def test_the_base_package_brings_nothing_along(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())
    requirements = metadata.get_all("Requires-Dist") or []
    assert requirements, "the extras are gone"
    assert [line for line in requirements if "extra ==" not in line] == []


def test_an_application_can_import_the_client_with_nothing_else_installed(wheel: Path) -> None:
    # -I -S: no site-packages, no current folder; a wheel can be imported from as it is.
    program = f"import sys; sys.path.insert(0, {str(wheel)!r}); import sources.client as c; print(c.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(wheel) in done.stdout


def test_the_tracking_core_runs_without_spark_or_any_network_library(wheel: Path) -> None:
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_NOT_FOR_THE_CORE!r}:
            raise ImportError(name + " is not for the core")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, {str(wheel)!r})
import importlib, pkgutil, streaming.core, streaming.judge
for room in (streaming.core, streaming.judge):
    for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(module.name)
        print(module.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=wheel.parent)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 2
