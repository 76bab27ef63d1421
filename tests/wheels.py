"""Builds the project's wheels from copies, so that the checkout stays clean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BUILT: Final = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build")


def build(source: Path) -> Path:
    """Build the wheel of a folder with a pyproject.toml; the wheel is put into that folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(source), str(source)], check=True)
    [built] = source.glob("*.whl")
    return built


def build_client(folder: Path) -> Path:
    """Build the wheel of the client library, somewhere below `folder`."""
    copy = folder / "client"
    shutil.copytree(ROOT / "client", copy, ignore=BUILT)
    return build(copy)
