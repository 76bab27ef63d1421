"""Where a shard's state is stored between batches: in files that Spark's own state points to, or in Spark's state itself.

Spark pickles state on its way to Python and back, and writes all of it again to its own store: some 30 ms of one core
per megabyte and batch. In a file the same blob costs one write and one read. Spark still decides which version of the file is
current: the pointer is committed with the batch, and a batch that runs again reads the version before it.
"""

from __future__ import annotations

import mmap
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from streaming.core.columns import Buffer
from streaming.core.state.state import Packed
from streaming.folder import local_folder, make_folder, write_durably

FOLDER: Final = "shards"
"""Name of the folder in the checkpoint."""
SEGMENT: Final = ".layer"
"""The ending of a segment's file, whose name is the segment's."""

VERSIONS_KEPT: Final = 25
"""How many batches back a checkpoint can go: more than Spark keeps of its own, so that a copy taken while the job runs holds at
least one complete batch."""
RECENT_KEPT: Final = 3
"""The number of latest batches of which all files are kept: one that Spark has not committed yet, the last that it has, and
the one before…"""
EARLIER_EVERY: Final = 8
"""…and every how many batches before them. Going back further costs no more than a few batches that run again. A copy may take
`VERSIONS_KEPT` less this many batches, and one: that long the last of these versions stays whole."""

_INLINE: Final = b"I"
_CHECKED: Final = b"C"
"""Marks names with length and checksum: see `StateFile`."""
_HEAD: Final = ".state"


_MOST_VERIFIED: Final = 10_000
_verified: set[tuple[Path, int, int]] = set()
"""Files that this process has written or verified, and does not verify again."""


class StateDamaged(RuntimeError):
    """A state file is missing or has other content than was written. The message names it."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file as it was written. As text it is `name:length:checksum`, or only a name."""

    name: str
    length: int | None = None
    checksum: int | None = None
    """CRC-32."""

    @classmethod
    def of(cls, text: str) -> StateFile:
        """Parse the text of a file."""
        name, *rest = text.split(":")
        return cls(name, int(rest[0]), int(rest[1], 16)) if rest else cls(name)

    def __str__(self) -> str:
        return self.name if self.length is None or self.checksum is None else f"{self.name}:{self.length}:{self.checksum:08x}"

    def read(self, folder: Path) -> memoryview:
        """Return its content, mapped; verify length and checksum once per process. Raises `StateDamaged`."""
        path = folder / self.name
        try:
            with path.open("rb") as file:
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError as error:
            raise StateDamaged(f"the state file {path} is gone") from error
        except ValueError as error:
            raise StateDamaged(f"the state file {path} is empty") from error
        if self.length is None or self.checksum is None or (known := (path, self.length, self.checksum)) in _verified:
            return content
        if len(content) != self.length:
            raise StateDamaged(f"the state file {path} has {len(content)} bytes, {self.length} were written")
        if zlib.crc32(content) != self.checksum:
            raise StateDamaged(f"the state file {path} has other bytes than were written")
        _remember(known)
        return content

    @classmethod
    def written(cls, folder: Path, name: str, content: Buffer) -> StateFile:
        """Write a file, unless an intact one of that name exists."""
        made = cls(name, len(content), zlib.crc32(content))
        path = folder / name
        if (path, made.length, made.checksum) not in _verified or not path.exists():
            try:
                made.read(folder)
            except StateDamaged:
                write_durably(path, memoryview(content))
                _remember((path, len(content), zlib.crc32(content)))
        return made


def forget_verified_files() -> None:
    """Verify every file again, even those this process has verified before."""
    _verified.clear()


def _remember(known: tuple[Path, int, int]) -> None:
    if len(_verified) > _MOST_VERIFIED:
        _verified.clear()
    _verified.add(known)


class StateKeeper(Protocol):
    """Used inside Python workers: picklable, without open files."""

    @property
    def ids_apart_from(self) -> int | None:
        """Return from how many rows a state's ids are stored apart; None where that would only make it larger."""

    def first(self, shard: int) -> Packed | None:
        """Return the state a shard starts with, None for an empty one. Raises `StateDamaged`."""

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Store a state; return the reference that Spark must keep in its place."""

    def fetch(self, kept: bytes) -> Packed:
        """Return the state for a reference of `keep`. Raises `StateDamaged` when one of its files is missing or changed."""

    def files_of(self, kept: bytes) -> list[str]:
        """Return its files, as texts of `StateFile`, for the driver."""


@dataclass(frozen=True)
class InlineState:
    """Stores state in Spark's own state: works with any file system Spark supports."""

    ids_apart_from: ClassVar[None] = None

    def first(self, shard: int) -> Packed | None:
        """Return None: the first state is empty."""
        del shard
        return None

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Return the whole state, each part preceded by its length."""
        del shard
        parts: list[Buffer] = [packed.head]
        for name, body in packed.segments.items():
            parts += (name.encode(), body)
        return _INLINE + b"".join(chunk for part in parts for chunk in (struct.pack("<Q", len(part)), part))

    def fetch(self, kept: bytes) -> Packed:
        """Return the whole state; one that is stored in files cannot be read without their folder."""
        if kept[:1] != _INLINE:
            raise StateDamaged(f"the state is in {_files(kept)[0].name}, which was written to a local checkpoint folder")
        return _from_inline(kept)

    def files_of(self, kept: bytes) -> list[str]:
        """Return nothing: there are no files."""
        del kept
        return []


@dataclass(frozen=True)
class FileState:
    """Stores state in a folder that every worker reaches under the same path."""

    ids_apart_from: ClassVar[int] = 16_384
    """A file costs more than some hundred kilobytes in the head."""
    folder: Path
    seeds: Mapping[int, tuple[StateFile, ...]] = field(default_factory=dict)
    """The files of each shard's first state, in a checkpoint that was created from another one."""

    def first(self, shard: int) -> Packed | None:
        """Return the state a shard starts with, None for an empty one."""
        files = self.seeds.get(shard)
        return None if files is None else unpacked_files(self.folder, files)

    def keep(self, shard: int, packed: Packed) -> bytes:
        """Write what changed to new files; everything is on disk when this returns.

        A file that an earlier version or another attempt may need is never overwritten. Segments that do not exist yet are
        written to files named by their content.
        """
        segments = [StateFile.written(self.folder, f"{name}{SEGMENT}", body) for name, body in packed.segments.items()]
        head = StateFile.written(self.folder, f"{shard}-{uuid.uuid4().hex}{_HEAD}", packed.head)
        return _CHECKED + " ".join(map(str, [head, *segments])).encode()

    def fetch(self, kept: bytes) -> Packed:
        """Read the file and map the segments, or accept a state that was stored inline before."""
        if kept[:1] == _INLINE:
            return _from_inline(kept)
        return unpacked_files(self.folder, _files(kept))

    def files_of(self, kept: bytes) -> list[str]:
        """Return their names in the folder, with length and checksum."""
        return [] if kept[:1] == _INLINE else [str(file) for file in _files(kept)]


def unpacked_files(folder: Path, files: Sequence[StateFile]) -> Packed:
    """Read the state from some files, the head first. Raises `StateDamaged`."""
    head, *segments = files
    return Packed(bytes(head.read(folder)), {file.name.removesuffix(SEGMENT): file.read(folder) for file in segments})


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
    """Return files for a checkpoint on a local or mounted disk (creating the folder), Spark's state for one behind a URI."""
    local = local_folder(checkpoint)
    if local is None:
        return InlineState()
    folder = local.path / FOLDER
    make_folder(folder)
    return FileState(folder, seeds or {})


def whole_of(batches: Sequence[int], kept: int) -> list[int]:
    """Return which of these batches, ascending, keep all they need, when a checkpoint can go back `kept` batches."""
    earlier, recent = batches[:-RECENT_KEPT], batches[-RECENT_KEPT:]
    return [*(batch for batch in earlier if batch % EARLIER_EVERY == 0 and batch > recent[-1] - kept), *recent]


class Pruner:
    """Deletes, on the driver, files that no version points to any more."""

    def __init__(
        self, keeper: StateKeeper, shards: int, *, kept: int = VERSIONS_KEPT, earlier: frozenset[str] | None = None
    ) -> None:
        """`earlier` names the files that versions from before this run point to; the others are deleted now. None: unknown."""
        self._kept = kept
        self._folder = keeper.folder if isinstance(keeper, FileState) else None
        self._shards = shards
        self._latest: dict[int, Sequence[str]] = {}
        self._versions: dict[int, frozenset[str]] = {}
        """The names of each batch's files, oldest batch first."""
        self._from_before: frozenset[str] = frozenset()
        """Files that versions from before this run may point to, until the checkpoint can no longer go back to these."""
        if isinstance(keeper, FileState):
            if earlier is None:
                self._from_before = frozenset(path.name for path in keeper.folder.iterdir())
            else:
                self._from_before = earlier.union(file.name for files in keeper.seeds.values() for file in files)
                self._delete_all_but(keeper.folder, self._from_before)

    def published(self, batch_id: int, files: Mapping[int, Sequence[str]]) -> None:
        """Record that a batch left the states of these shards in these files; other shards keep theirs.

        Files of failed attempts are deleted too.
        """
        if self._folder is None:
            return
        self._latest.update({shard: [StateFile.of(text).name for text in texts] for shard, texts in files.items()})
        if len(self._latest) < self._shards:
            return
        self._versions[batch_id] = frozenset(name for names in self._latest.values() for name in names)
        batches = list(self._versions)[-self._kept :]
        if len(batches) == self._kept:
            self._from_before = frozenset()
        self._versions = {batch: self._versions[batch] for batch in batches}
        needed = self._from_before.union(*(self._versions[batch] for batch in whole_of(batches, self._kept)))
        self._delete_all_but(self._folder, needed)

    @staticmethod
    def _delete_all_but(folder: Path, needed: frozenset[str]) -> None:
        for path in folder.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)
