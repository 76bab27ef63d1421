"""The two wheels: what they contain, and what works in an application that installs only the client library."""

import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.wheels import BUILT, ROOT, build, build_client

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The service's wheel, built from a copy so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("source")
    for room in _ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=BUILT)
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, copy)
    return build(copy)


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the client library."""
    return build_client(tmp_path_factory.mktemp("library"))


def _metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(archive.read(name).decode())


def _listed(*folders: str, within: Path = ROOT) -> list[str]:
    listing = subprocess.run(["git", "ls-files", *folders], cwd=within, capture_output=True, text=True, check=True)
    return listing.stdout.splitlines()


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_four_rooms(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert [name for name in _listed(*_ROOMS) if name not in packed and not name.endswith(".c")] == []


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_scan")
def test_the_wheel_holds_the_compiled_scan(wheel: Path) -> None:
    built = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("sources/wire/_scan.")]
    assert [Path(name).suffix for name in built] == [".so"]


@pytest.mark.slow
def test_the_service_needs_the_library_of_its_own_version(wheel: Path, client_wheel: Path) -> None:
    service, library = _metadata(wheel), _metadata(client_wheel)
    assert (service["Name"], library["Name"]) == ("queuewatch-service", "queuewatch")
    assert service["Version"] == library["Version"]
    assert f"queuewatch=={library['Version']}" in service.get_all("Requires-Dist", [])


@pytest.mark.slow
def test_the_client_library_is_small_and_has_no_dependencies(client_wheel: Path) -> None:
    """The wheel has one top-level package, requirements only for extras, less than 1 MB, and every file of the package."""
    requirements = _metadata(client_wheel).get_all("Requires-Dist") or []
    assert requirements, "the extras are gone"
    assert [line for line in requirements if "extra ==" not in line] == []
    packed = zipfile.ZipFile(client_wheel).namelist()
    assert {name.partition("/")[0] for name in packed if ".dist-info/" not in name} == {"queuewatch"}
    assert client_wheel.stat().st_size < 1_000_000
    assert [name for name in _listed("queuewatch", within=ROOT / "client") if name not in packed] == []


def test_the_client_library_can_be_imported_with_nothing_else_installed(client_wheel: Path) -> None:
    # -I -S: no site-packages and no current directory. A wheel is a zip file, so Python can import from it directly.
    program = f"import sys; sys.path.insert(0, {str(client_wheel)!r}); import queuewatch as c; print(c.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(client_wheel) in done.stdout


@pytest.mark.slow
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
