"""Where a shard's state is kept between batches: in a file Spark's own state points to, or in Spark's state itself.

Spark pickles state on its way to Python and back, and writes all of it once more to its own store: some 30 ms of one core
per megabyte and batch. Through a file the same blob costs one write and one read. Which version of the file counts is still
Spark's to say: the pointer is committed with the batch, and a batch that runs again reads the version before it.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from streaming.spark.folder import local_folder

VERSIONS_KEPT: Final = 5
"""Batches whose files are kept; Spark never goes back more than one."""

_INLINE: Final = b"I"
_FILE: Final = b"F"
_SUFFIX: Final = ".state"


class StateKeeper(Protocol):
    """Used inside Python workers: picklable, without open files."""

    def keep(self, shard: int, blob: bytes) -> bytes:
        """Keep `blob`; answers what Spark must remember in its place."""

    def fetch(self, kept: bytes) -> bytes:
        """The blob of what `keep` answered. Raises `FileNotFoundError` when its file is gone."""

    def file_of(self, kept: bytes) -> str | None:
        """The name of the file, for the driver; None when there is none."""


@dataclass(frozen=True)
class InlineState:
    """In Spark's state: works with any file system Spark knows."""

    def keep(self, shard: int, blob: bytes) -> bytes:
        """The blob itself."""
        del shard
        return _INLINE + blob

    def fetch(self, kept: bytes) -> bytes:
        """The blob itself; one that was kept in a file cannot be had without its folder."""
        if kept[:1] == _FILE:
            raise FileNotFoundError(f"the state is in {kept[1:].decode()}, which was written to a local checkpoint folder")
        return kept[1:]

    def file_of(self, kept: bytes) -> str | None:
        """There is none."""
        del kept
        return None


@dataclass(frozen=True)
class FileState:
    """In a folder every worker reaches under the same path."""

    folder: Path

    def keep(self, shard: int, blob: bytes) -> bytes:
        """Write a new file; never over one that an earlier version or another attempt may need."""
        name = f"{shard}-{uuid.uuid4().hex}{_SUFFIX}"
        (self.folder / name).write_bytes(blob)
        return _FILE + name.encode()

    def fetch(self, kept: bytes) -> bytes:
        """Read the file, or take a blob that was kept inline before."""
        return kept[1:] if kept[:1] == _INLINE else (self.folder / kept[1:].decode()).read_bytes()

    def file_of(self, kept: bytes) -> str | None:
        """The name in the folder."""
        return kept[1:].decode() if kept[:1] == _FILE else None


def state_keeper(checkpoint: str) -> StateKeeper:
    """Files for a checkpoint on a local or mounted disk (the folder is made), Spark's state for one behind another URI."""
    local = local_folder(checkpoint)
    if local is None:
        return InlineState()
    folder = local.path / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    return FileState(folder)


class Pruner:
    """Driver's side: deletes the files no version points to any more."""

    def __init__(self, keeper: StateKeeper, shards: int) -> None:
        self._folder = keeper.folder if isinstance(keeper, FileState) else None
        self._shards = shards
        self._latest: dict[int, str | None] = {}
        self._versions: deque[frozenset[str]] = deque(maxlen=VERSIONS_KEPT)

    def published(self, files: Mapping[int, str | None]) -> None:
        """A batch left the states of these shards in these files; a shard it did not touch has the file it had.

        Files of attempts that failed go too.
        """
        if self._folder is None:
            return
        self._latest.update(files)
        if len(self._latest) < self._shards:
            return
        self._versions.append(frozenset(name for name in self._latest.values() if name is not None))
        if len(self._versions) < VERSIONS_KEPT:
            # What was there when this run began may still be pointed to.
            return
        needed = frozenset[str]().union(*self._versions)
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in needed:
                path.unlink(missing_ok=True)
