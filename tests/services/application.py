"""An application's own virtual environment: its frameworks and the library from its wheel, but not the service."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from streaming.spark import jars
from tests.services import sqs
from tests.services.process import ServiceUnavailable
from tests.wheels import build_client

_FRAMEWORKS: Final = Path(__file__).with_name("frameworks.txt")


def variables(endpoint: str) -> dict[str, str]:
    """Return the environment of a program whose boto3 finds a local SQS by itself, without telemetry settings."""
    cleaned = {name: value for name, value in os.environ.items() if not name.startswith("QUEUEWATCH_")}
    return cleaned | {
        "AWS_ENDPOINT_URL_SQS": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": sqs.REGION,
    }


def create(folder: Path) -> Path:
    """Create the environment with `frameworks.txt` and the library; return its Python. Raises `ServiceUnavailable`."""
    frameworks = _frameworks()
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "frameworks.pth").write_text(f"{frameworks}\n")
    subprocess.run([*_pip(python), "--no-index", str(build_client(folder))], check=True)
    return python


def _frameworks() -> Path:
    """Return the folder with the packages of `frameworks.txt`; they are many, so they are installed once for all runs."""
    locked = hashlib.sha256(_FRAMEWORKS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = jars.cache_dir() / f"frameworks-{locked}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            options = ["--require-hashes", "--target", f"{unfinished}/packages", "-r", str(_FRAMEWORKS)]
            command = [*_pip(Path(sys.executable)), *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServiceUnavailable(f"{_FRAMEWORKS.name} cannot be installed: {done.stderr.strip()[-300:]}")
            with contextlib.suppress(OSError):  # another run was faster
                os.rename(f"{unfinished}/packages", folder)
    return folder


def _pip(python: Path) -> list[str]:
    options = ["--python", str(python), "--quiet", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", *options, "install", "--no-deps"]
