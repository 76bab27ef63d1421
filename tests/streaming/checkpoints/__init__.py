"""Checkpoints as earlier releases left them. Written by `scripts/store_checkpoint.py`."""

from __future__ import annotations

import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a stored checkpoint, and the spool folder beside it, into `folder`; the path of the checkpoint."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "checkpoint"
