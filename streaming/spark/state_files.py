"""Where a shard's state is kept between batches: in a file Spark's own state points to, or in Spark's state itself.

Spark pickles state on its way to Python and back, and writes all of it once more to its own store: some 30 ms of one core
per megabyte and batch. Through a file the same blob costs one write and one read. Which version of the file counts is still
Spark's to say: the pointer is committed with the batch, and a batch that runs again reads the version before it.
"""

from __future__ import annotations

import mmap
import struct
import uuid
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from streaming.core.state.state import Buffer, Packed
from streaming.spark.folder import local_folder, write_durably

VERSIONS_KEPT: Final = 20
"""Batches whose files are kept: more than Spark keeps of its own, so that whatever of a checkpoint that is being copied was
copied first, there is a batch of which all is there."""

_INLINE: Final = b"I"
_NAMES: Final = b"F"
"""Names alone, as earlier releases wrote them."""
_CHECKED: Final = b"C"
"""Names, each with length and checksum: see `StateFile`."""
_HEAD: Final = ".state"
_LAYER: Final = ".layer"


_whole: set[tuple[Path, int, int]] = set()
"""Files this process has written, or read and found whole: the same file is not read again to be sure."""


class StateDamaged(RuntimeError):
    """A file of a state is not there, or is not what was written. The message names it."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file as it was written. As text `name:length:checksum`, or a name alone."""

    name: str
    length: int | None = None
    checksum: int | None = None
    """CRC-32."""

    @classmethod
    def of(cls, text: str) -> StateFile:
        """From its text."""
        name, *rest = text.split(":")
        return cls(name, int(rest[0]), int(rest[1], 16)) if rest else cls(name)

    def __str__(self) -> str:
        return self.name if self.length is None or self.checksum is None else f"{self.name}:{self.length}:{self.checksum:08x}"

    def read(self, folder: Path) -> memoryview:
        """Its content, mapped; compared with length and checksum when this process first sees it. Raises `StateDamaged`."""
        path = folder / self.name
        try:
            with path.open("rb") as file:
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError as error:
            raise StateDamaged(f"the state file {path} is gone") from error
        except ValueError as error:
            raise StateDamaged(f"the state file {path} is empty") from error
        if self.length is None or self.checksum is None or (known := (path, self.length, self.checksum)) in _whole:
            return content
        if len(content) != self.length:
            raise StateDamaged(f"the state file {path} has {len(content)} bytes, {self.length} were written")
        if zlib.crc32(content) != self.checksum:
            raise StateDamaged(f"the state file {path} has other bytes than were written")
        _remember(known)
        return content

    @classmethod
    def written(cls, folder: Path, name: str, content: Buffer) -> StateFile:
        """Write a file, unless one of that name is there and whole."""
        made = cls(name, len(content), zlib.crc32(content))
        path = folder / name
        if (path, made.length, made.checksum) not in _whole or not path.exists():
            try:
                made.read(folder)
            except StateDamaged:
                write_durably(path, memoryview(content))
                _remember((path, len(content), zlib.crc32(content)))
        return made


def look_again() -> None:
    """Read every file again to be sure, though this process has found it whole before."""
    _whole.clear()


def _remember(known: tuple[Path, int, int]) -> None:
    if len(_whole) > 10_000:
        _whole.clear()
    _whole.add(known)


class StateKeeper(Protocol):
    """Used inside Python workers: picklable, without open files."""

    def first(self, shard: int) -> Packed | None:
        """The state a shard begins with, None for an empty one. Raises `StateDamaged`."""

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Keep a state; answers what Spark must remember in its place."""

    def fetch(self, kept: bytes) -> Packed:
        """The state of what `keep` answered. Raises `StateDamaged` when a file of it is gone, or not what was written."""

    def files_of(self, kept: bytes) -> list[str]:
        """Its files, as texts of `StateFile`, for the driver."""


@dataclass(frozen=True)
class InlineState:
    """In Spark's state: works with any file system Spark knows."""

    def first(self, shard: int) -> Packed | None:
        """An empty one."""
        del shard
        return None

    def keep(self, shard: int, packed: Packed) -> bytes:
        """All of it, each part behind its length."""
        del shard
        parts: list[Buffer] = [packed.head]
        for name, body in packed.layers.items():
            parts += (name.encode(), body)
        return _INLINE + b"".join(chunk for part in parts for chunk in (struct.pack("<Q", len(part)), part))

    def fetch(self, kept: bytes) -> Packed:
        """All of it; one that was kept in files cannot be had without their folder."""
        if kept[:1] != _INLINE:
            raise StateDamaged(f"the state is in {_files(kept)[0].name}, which was written to a local checkpoint folder")
        return _from_inline(kept)

    def files_of(self, kept: bytes) -> list[str]:
        """There are none."""
        del kept
        return []


@dataclass(frozen=True)
class FileState:
    """In a folder every worker reaches under the same path."""

    folder: Path
    seeds: Mapping[int, tuple[StateFile, ...]] = field(default_factory=dict)
    """By shard the files of its first state, in a checkpoint that was made from another one."""

    def first(self, shard: int) -> Packed | None:
        """The state a shard begins with, None for an empty one."""
        files = self.seeds.get(shard)
        return None if files is None else unpacked_files(self.folder, files)

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Write what changed to a new file, never over one that an earlier version or another attempt may need, and layers
        that are not there yet to files named by their content. All of it is on the disk when this returns."""
        layers = [StateFile.written(self.folder, f"{name}{_LAYER}", body) for name, body in packed.layers.items()]
        head = StateFile.written(self.folder, f"{shard}-{uuid.uuid4().hex}{_HEAD}", packed.head)
        return _CHECKED + " ".join(map(str, [head, *layers])).encode()

    def fetch(self, kept: bytes) -> Packed:
        """Read the file and map the layers, or take a state that was kept inline before."""
        if kept[:1] == _INLINE:
            return _from_inline(kept)
        return unpacked_files(self.folder, _files(kept))

    def files_of(self, kept: bytes) -> list[str]:
        """Their names in the folder, with length and checksum."""
        return [] if kept[:1] == _INLINE else [str(file) for file in _files(kept)]


def unpacked_files(folder: Path, files: Sequence[StateFile]) -> Packed:
    """The state in some files, the head first. Raises `StateDamaged`."""
    head, *layers = files
    return Packed(bytes(head.read(folder)), {file.name.removesuffix(_LAYER): file.read(folder) for file in layers})


def _files(kept: bytes) -> list[StateFile]:
    return [StateFile.of(text) for text in kept[1:].decode().split()]


def _from_inline(kept: bytes) -> Packed:
    head, *rest = _parts(memoryview(kept)[1:])
    return Packed(bytes(head), {bytes(name).decode(): body for name, body in zip(rest[::2], rest[1::2], strict=True)})


def _parts(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield data[at + 8 : at + 8 + length]
        at += 8 + length


def state_keeper(checkpoint: str, seeds: Mapping[int, tuple[StateFile, ...]] | None = None) -> StateKeeper:
    """Files for a checkpoint on a local or mounted disk (the folder is made), Spark's state for one behind another URI."""
    local = local_folder(checkpoint)
    if local is None:
        return InlineState()
    folder = local.path / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    return FileState(folder, seeds or {})


class Pruner:
    """Driver's side: deletes the files no version points to any more."""

    def __init__(self, keeper: StateKeeper, shards: int, *, kept: int = VERSIONS_KEPT) -> None:
        self._kept = kept
        self._folder = keeper.folder if isinstance(keeper, FileState) else None
        self._shards = shards
        self._latest: dict[int, Sequence[str]] = {}
        self._versions: deque[frozenset[str]] = deque(maxlen=kept)

    def published(self, files: Mapping[int, Sequence[str]]) -> None:
        """A batch left the states of these shards in these files; a shard it did not touch has the files it had.

        Files of attempts that failed go too.
        """
        if self._folder is None:
            return
        self._latest.update({shard: [StateFile.of(text).name for text in texts] for shard, texts in files.items()})
        if len(self._latest) < self._shards:
            return
        self._versions.append(frozenset(name for names in self._latest.values() for name in names))
        if len(self._versions) < self._kept:
            # What was there when this run began may still be pointed to.
            return
        needed = frozenset[str]().union(*self._versions)
        for path in self._folder.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)
