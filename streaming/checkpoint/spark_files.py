"""Files that Spark wrote to a checkpoint: replace one, and flush all on this machine, because Spark does not do so itself.

Without that, a power failure empties the files of half a minute (`offsets`, `commits`, the changes of Spark's own state): more
batches than a checkpoint can go back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from streaming.checkpoint.offset_log import COMMITS
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.folder import Folder, sync_file, sync_folder

_TREES: Final = (OFFSETS, COMMITS, "state", "sources")
_PART: Final = ".tmp"
"""The ending of a file that Spark is still writing, and renames afterwards."""
_AT_ONCE: Final = 8

_File = tuple[str, int]
"""Name and inode: a file that replaces another one has its own."""


def rewrite_spark_file(folder: Folder, name: str, content: bytes) -> None:
    """Replace a file that Spark wrote. On a local disk Hadoop keeps a checksum beside it, which is that of the old content.

    The checksum goes first: Spark reads a file without one, but refuses the new content with the old one, as after a crash.
    """
    folder.delete(f".{name}.crc")
    folder.write(name, content)


class SparkFiles:
    """The files in Spark's folders of a checkpoint, and which of them are flushed. For one query."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._flushed: dict[str, frozenset[_File]] = {}
        """The files flushed, by folder."""

    def flush(self) -> None:
        """Return once every file that Spark has finished is on disk, with its name. Raises `OSError`.

        Called when a batch begins, it keeps the batch's offsets, and all that the batches before have left.
        """
        found = {folder: _files(folder) for folder in self._folders()}
        changed = [(folder, new) for folder, files in found.items() if (new := files - self._flushed.get(folder, frozenset()))]
        # Together they cost the disk little more than one of them.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(_sync, *zip(*changed, strict=True)) if changed else ())
        self._flushed = found

    def _folders(self) -> Iterator[str]:
        yield str(self._checkpoint)
        for tree in _TREES:
            for folder, _, _ in os.walk(self._checkpoint / tree):
                yield folder


def _files(folder: str) -> frozenset[_File]:
    with os.scandir(folder) as entries:
        return frozenset((entry.name, entry.inode()) for entry in entries if entry.is_file() and not entry.name.endswith(_PART))


def _sync(folder: str, files: Iterable[_File]) -> None:
    for name, _ in sorted(files):
        # Spark deletes old files in a thread of its own.
        with suppress(FileNotFoundError):
            sync_file(Path(folder, name))
    sync_folder(Path(folder))
