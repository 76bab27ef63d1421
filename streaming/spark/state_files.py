"""Where a shard's state is kept between batches: in a file Spark's own state points to, or in Spark's state itself.

Spark pickles state on its way to Python and back, and writes all of it once more to its own store: some 30 ms of one core
per megabyte and batch. Through a file the same blob costs one write and one read. Which version of the file counts is still
Spark's to say: the pointer is committed with the batch, and a batch that runs again reads the version before it.
"""

from __future__ import annotations

import mmap
import os
import struct
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from streaming.core.state import Buffer, Packed
from streaming.spark.folder import local_folder

VERSIONS_KEPT: Final = 5
"""Batches whose files are kept; Spark never goes back more than one."""

_INLINE: Final = b"I"
_FILE: Final = b"F"
_HEAD: Final = ".state"
_LAYER: Final = ".layer"


class StateKeeper(Protocol):
    """Used inside Python workers: picklable, without open files."""

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Keep a state; answers what Spark must remember in its place."""

    def fetch(self, kept: bytes) -> Packed:
        """The state of what `keep` answered. Raises `FileNotFoundError` when a file of it is gone."""

    def files_of(self, kept: bytes) -> list[str]:
        """The names of its files, for the driver."""


@dataclass(frozen=True)
class InlineState:
    """In Spark's state: works with any file system Spark knows."""

    def keep(self, shard: int, packed: Packed) -> bytes:
        """All of it, each part behind its length."""
        del shard
        parts: list[Buffer] = [packed.head]
        for name, body in packed.layers.items():
            parts += (name.encode(), body)
        return _INLINE + b"".join(chunk for part in parts for chunk in (struct.pack("<Q", len(part)), part))

    def fetch(self, kept: bytes) -> Packed:
        """All of it; one that was kept in files cannot be had without their folder."""
        if kept[:1] == _FILE:
            raise FileNotFoundError(f"the state is in {_names(kept)[0]}, which was written to a local checkpoint folder")
        return _from_inline(kept)

    def files_of(self, kept: bytes) -> list[str]:
        """There are none."""
        del kept
        return []


@dataclass(frozen=True)
class FileState:
    """In a folder every worker reaches under the same path."""

    folder: Path

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Write what changed to a new file, never over one that an earlier version or another attempt may need, and layers
        that are not there yet to files named by their content."""
        for name, body in packed.layers.items():
            path = self.folder / f"{name}{_LAYER}"
            if not path.exists():
                # Half a layer must never stand under its name.
                unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
                unfinished.write_bytes(body)
                os.replace(unfinished, path)
        head = f"{shard}-{uuid.uuid4().hex}{_HEAD}"
        (self.folder / head).write_bytes(packed.head)
        return _FILE + " ".join([head, *(f"{name}{_LAYER}" for name in packed.layers)]).encode()

    def fetch(self, kept: bytes) -> Packed:
        """Read the file and map the layers, or take a state that was kept inline before."""
        if kept[:1] == _INLINE:
            return _from_inline(kept)
        head, *layers = _names(kept)
        return Packed(
            (self.folder / head).read_bytes(), {name.removesuffix(_LAYER): _mapped(self.folder / name) for name in layers}
        )

    def files_of(self, kept: bytes) -> list[str]:
        """Their names in the folder."""
        return _names(kept) if kept[:1] == _FILE else []


def _names(kept: bytes) -> list[str]:
    return kept[1:].decode().split()


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _from_inline(kept: bytes) -> Packed:
    head, *rest = _parts(memoryview(kept)[1:])
    return Packed(bytes(head), {bytes(name).decode(): body for name, body in zip(rest[::2], rest[1::2], strict=True)})


def _parts(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield data[at + 8 : at + 8 + length]
        at += 8 + length


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
        self._latest: dict[int, Sequence[str]] = {}
        self._versions: deque[frozenset[str]] = deque(maxlen=VERSIONS_KEPT)

    def published(self, files: Mapping[int, Sequence[str]]) -> None:
        """A batch left the states of these shards in these files; a shard it did not touch has the files it had.

        Files of attempts that failed go too.
        """
        if self._folder is None:
            return
        self._latest.update(files)
        if len(self._latest) < self._shards:
            return
        self._versions.append(frozenset(name for names in self._latest.values() for name in names))
        if len(self._versions) < VERSIONS_KEPT:
            # What was there when this run began may still be pointed to.
            return
        needed = frozenset[str]().union(*self._versions)
        for path in self._folder.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)
