"""Folders of small files that are written atomically."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

_SCRATCH: Final = re.compile(r"\..+\.\d+\.part")
"""The name of a file that `write_durably` has not finished: it holds the process id."""


class Folder(Protocol):
    """A flat folder of small files. Names are plain: no slash."""

    def read(self, name: str) -> bytes | None:
        """Return the file's content, or None when it does not exist."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Create or replace the file. After a crash, and to readers, it has the old content or the new one, never a part."""
        ...

    def names(self) -> list[str]:
        """Return the existing files, in no particular order; a folder that does not exist has none."""
        ...

    def delete(self, name: str) -> None:
        """Remove the file if it exists."""
        ...


def local_folder(uri: str) -> LocalFolder | None:
    """Return the folder at a path or `file:` URI, None for one on another file system."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return LocalFolder(Path(unquote(parts.path) if parts.scheme else uri).absolute())


class LocalFolder:
    """A folder on a disk of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        make_folder(self.path)
        write_durably(self.path / name, content)

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return [entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")]

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def write_durably(path: Path, content: bytes | memoryview) -> None:
    """Create or replace a file so that not even a power cut leaves a partial file under its name."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")  # matches _SCRATCH
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        # On a full disk a partial file would take up space that others need.
        scratch.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_scratch_files(folder: Path) -> int:
    """Remove what processes that were killed left of files they were writing, and return how many there were.

    Nothing else may be writing to the folder. Raises `OSError`.
    """
    left = [path for path in folder.glob(".*.part") if _SCRATCH.fullmatch(path.name)]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def make_folder(path: Path) -> None:
    """Create a folder, and those it is in, if it does not exist, so that not even a power cut removes it. Raises `OSError`."""
    try:
        path.mkdir()
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
    except OSError as error:
        if path.is_dir():
            return
        if isinstance(error, FileExistsError):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
        raise
    sync_folder(path.parent)


def move_durably(path: Path, target: Path) -> None:
    """Move a file, even to another file system, so that after a power cut it is whole in one place at least.

    Its removal from its folder is on disk once that folder is synced, which is the caller's business.
    """
    try:
        path.rename(target)
        sync_folder(target.parent)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copy2(path, part)
        sync_file(part)
        part.replace(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    path.unlink()


def sync_folder(path: Path) -> None:
    """Return once the names in a folder are on disk: files that were created, renamed or removed. Raises `OSError`."""
    sync_file(path)


def sync_file(path: Path) -> None:
    """Return once the content of a file is on disk, whoever wrote it. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
