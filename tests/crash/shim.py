"""Count a process's operations on disk and destinations, and fail or end the process at one of them.

It is installed in a child process, which sends itself SIGKILL. A power cut undoes what was written but not fsynced, and
renames and deletions in a folder that was not fsynced afterwards.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Mode = Literal["kill", "tear", "power", "fail"]
"""`kill`: the process is killed before the operation. `tear`: it is killed in the middle of a write. `power`: as `kill`, and what
was not synced is gone. `fail`: the operation raises as on a full disk, once.
"""
MODES: Final[tuple[Mode, ...]] = ("kill", "tear", "power", "fail")
Operation = Literal["write", "truncate", "fsync", "rename", "unlink", "send"]


def modes_of(operation: Operation) -> tuple[Mode, ...]:
    """Return the faults that can happen at an operation."""
    return tuple(mode for mode in MODES if mode != "tear" or operation == "write")


@dataclass
class Shim:
    """Counts the operations below `root`; operation number `at` is the one with the fault."""

    root: Path
    spared: tuple[str, ...] = ()
    """Folders below it whose writes are not counted."""
    at: int | None = None
    mode: Mode = "kill"
    before: Callable[[], object] = lambda: None
    """Called before each operation."""
    log: list[Operation] = field(default_factory=list)
    _synced: dict[str, int] = field(default_factory=dict)
    """By path of a written file: the number of bytes that survive a power cut."""
    _unlink: Callable[[str], None] = os.unlink
    _undo: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    """Folder, path and previous content for each rename or deletion whose folder was not synced since."""

    def operation(self, kind: Operation, half: Callable[[], object] = lambda: None) -> None:
        """Count an operation that is about to be done; `half` does half of it."""
        self.before()
        self.log.append(kind)
        if len(self.log) - 1 != self.at:
            return
        if self.mode == "fail":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.mode == "tear":
            half()
        if self.mode == "power":
            self._lose_power()
        os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Replace the operating system's functions in this process."""
        fsync, replace, unlink, opened = os.fsync, os.replace, os.unlink, io.open
        self._unlink = unlink

        def counted_fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self._own(path):
                self.operation("fsync")
                fsync(descriptor)
                if os.path.isdir(path):
                    self._undo = [undo for undo in self._undo if undo[0] != path]
                else:
                    self._synced[path] = os.path.getsize(path)

        def counted_replace(source: Any, target: Any) -> None:
            if self._own(target):
                self.operation("rename")
                self._remember(target)
                self._remember(source)
                if (synced := self._synced.pop(os.fspath(source), None)) is not None:
                    self._synced[os.fspath(target)] = synced
            replace(source, target)

        def counted_unlink(path: Any, **named: Any) -> None:
            if self._own(path) and os.path.exists(path):
                self.operation("unlink")
                self._remember(path)
            unlink(path, **named)

        def counted_open(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            file = opened(path, mode, *arguments, **named)
            if not isinstance(path, int) and set(mode) & set("wax+") and self._own(path):
                self._synced.setdefault(os.fspath(path), 0 if "w" in mode else os.path.getsize(path))
                return _File(file, self)
            return file

        os.fsync = counted_fsync  # type: ignore[assignment] # narrower
        os.replace = os.rename = counted_replace  # type: ignore[assignment]
        os.unlink = os.remove = counted_unlink
        io.open = builtins.open = counted_open  # type: ignore[assignment] # narrower

    def _own(self, path: Any) -> bool:
        own = Path(path)
        return own.is_relative_to(self.root) and not any(own.is_relative_to(self.root / name) for name in self.spared)

    def _remember(self, path: Any) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            before = None
        else:
            before = os.read(descriptor, self._synced.get(os.fspath(path), 1 << 26))
            os.close(descriptor)
        self._undo.append((os.path.dirname(path), os.fspath(path), before))

    def _lose_power(self) -> None:
        for path, length in self._synced.items():
            if os.path.exists(path) and os.path.getsize(path) > length:
                os.truncate(path, length)
        for _, path, before in reversed(self._undo):
            if before is None:
                self._unlink(path)
            else:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.write(descriptor, before)
                os.close(descriptor)


class _File:
    """A file open for writing, whose operations are counted."""

    def __init__(self, file: Any, shim: Shim) -> None:
        self._file = file
        self._shim = shim

    def write(self, content: Any) -> int:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        self._shim.operation("write", half)
        return int(self._file.write(content))

    def truncate(self, size: int | None = None) -> int:
        self._shim.operation("truncate")
        return int(self._file.truncate(size))

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
