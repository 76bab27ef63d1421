"""Checkpoints written by earlier releases. `scripts/store_checkpoint.py` creates them."""

from __future__ import annotations

import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted((path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz")), key=lambda name: int(name.split("-")[1]))
"""Oldest first."""


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a stored checkpoint and its spool folder into `folder`; return the checkpoint's path."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "checkpoint"
