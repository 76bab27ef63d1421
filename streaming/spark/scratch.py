"""Spark's temporary files: a folder per checkpoint, emptied at the next start after a kill."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_for(checkpoint: Path) -> Iterator[Path]:
    """Create an empty folder for the session that holds the lock of `checkpoint`; removed at the end of the block.

    A process that is killed leaves its folder, 5 to 15 MB of it; the next one on this checkpoint finds it by its name.
    """
    name = hashlib.blake2b(str(checkpoint.absolute()).encode(), digest_size=6).hexdigest()
    folder = Path(tempfile.gettempdir(), f"queuewatch-spark-{name}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # Another user of the machine can guess the name. Spark takes classes and states from this folder.
        folder = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
