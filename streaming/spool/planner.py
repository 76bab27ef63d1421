"""Plan what the next batch reads from the spool folder, and remove or archive files that were read."""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from streaming.config.source import SpoolSource
from streaming.folder import local_folder, make_folder, move_durably, sync_folder
from streaming.spool.cut import cut, is_finished
from streaming.spool.ledger import Plan, SpoolLedger, Taken, missing_of, take
from streaming.spool.names import printable
from streaming.spool.pattern import matcher
from streaming.spool.pieces import Piece

MOST_PIECES: Final = 4_000
"""The most pieces of one batch."""
SETTLES_WITHIN_S: Final = 5.0
"""A file without the ending of a finished one is read once it has not changed for this long."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Seen:
    """A file that seems to be still being written."""

    size: int
    changed_ns: int
    since_s: float


@dataclass(frozen=True, slots=True)
class _Found:
    """A file with unread content."""

    name: str
    size: int
    changed_ns: int
    taken: int


@dataclass
class SpoolPlanner:
    """Plans batches from a folder on this machine. `clock_s` never jumps."""

    source: SpoolSource
    folder: Path
    ledger: SpoolLedger
    clock_s: Callable[[], float]
    kept: int
    """The number of batches a checkpoint may go back: files they read are not removed yet."""
    waiting: int = 0
    """The number of files with unread content at the last plan."""
    _taken: dict[str, Taken] | None = None
    _last: int = -1
    _unfinished: dict[str, _Seen] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _settled: set[str] = field(default_factory=set)
    """Files that were read and have not grown for many batches; they are no longer checked."""

    def plan(self, batch_id: int, changed_by_ms: int | None = None) -> Plan:
        """Return what a batch reads: the same when it runs again. The plan is stored in the checkpoint first.

        Without a stored plan, files that changed after `changed_by_ms` (epoch milliseconds) are left to the next batch.
        Raises `SpoolDamaged`, and `OSError` when the checkpoint cannot be written.
        """
        if self._taken is None or batch_id <= self._last:
            self._taken = self.ledger.before(batch_id)
        self._last = batch_id
        known = self.ledger.plan_of(batch_id)
        if known is not None:
            take(self._taken, known)
            return known
        present = self._names()
        if present is None:
            return Plan(batch_id, ())
        self._clean(batch_id, present)
        plan = Plan(batch_id, tuple(self._pieces(batch_id, present, changed_by_ms)))
        if plan.pieces:
            self.ledger.save(plan)
            take(self._taken, plan)
            if self.ledger.index(batch_id, self._taken, present):
                self._taken = {name: taken for name, taken in self._taken.items() if name in present}
        return plan

    def missing(self, plan: Plan) -> set[str]:
        """Return the files of a plan that are now missing, or shorter than before."""
        sizes: dict[str, int] = {}
        for name in {piece.name for piece in plan.pieces}:
            try:
                sizes[name] = (self.folder / name).stat().st_size
            except FileNotFoundError:
                continue
        return missing_of(plan.pieces, sizes)

    def _names(self) -> set[str] | None:
        """Return the existing files; None when the folder cannot be listed, in which case none is forgotten."""
        matches = matcher(self.source.pattern)
        try:
            with os.scandir(self.folder) as entries:
                fit = (entry for entry in entries if entry.name[0] not in "._" and matches(entry.name))
                names = {entry.name for entry in fit if self._is_there(entry)}
        except OSError as error:
            self._log_once("", "spool_folder_not_listed", error)
            return None
        self._refused &= names
        self._settled &= names
        self._unfinished = {name: seen for name, seen in self._unfinished.items() if name in names}
        return names

    def _is_there(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry is a file. One that cannot be examined counts as one: if it was read, it must not be forgotten."""
        try:
            return entry.is_file()
        except OSError as error:
            self._log_once(entry.name, "spool_file_not_read", error)
            return True

    def _pieces(self, batch_id: int, present: set[str], changed_by_ms: int | None) -> Iterator[Piece]:
        found = sorted(self._found(batch_id, present), key=lambda one: (one.changed_ns, one.name))
        if changed_by_ms is not None:
            found = [one for one in found if one.changed_ns <= changed_by_ms * 1_000_000]
        room, planned, self.waiting = self.source.max_bytes_per_trigger, 0, len(found)
        for one in found:
            if room <= 0 or planned >= MOST_PIECES:
                return
            try:
                with (self.folder / one.name).open("rb") as file:
                    if not self._is_due(file, one):
                        continue
                    end = one.taken
                    for piece in cut(file, one.name, one.taken, one.size):
                        if (planned and piece.size > room) or planned >= MOST_PIECES:
                            return
                        yield piece
                        end = piece.end
                        room -= piece.size
                        planned += 1
                    self.waiting -= end >= one.size
            except FileNotFoundError:
                self.waiting -= 1
            except OSError as error:
                self._log_once(one.name, "spool_file_not_read", error)

    def _found(self, batch_id: int, present: set[str]) -> Iterator[_Found]:
        assert self._taken is not None
        for name in present:
            taken = self._taken.get(name)
            if name in self._settled:
                continue
            try:
                status = (self.folder / name).stat()
            except OSError:
                continue
            end = taken.end if taken is not None else 0
            if status.st_size > end:
                yield _Found(name, status.st_size, status.st_mtime_ns, end)
            elif taken is not None and taken.batch_id < batch_id - self.kept:
                self._settled.add(name)

    def _is_due(self, file: BinaryIO, one: _Found) -> bool:
        """Whether a file can be read now: it is complete, or no longer being written."""
        if is_finished(file, one.size):
            self._unfinished.pop(one.name, None)
            return True
        seen = self._unfinished.get(one.name)
        if seen is None or (seen.size, seen.changed_ns) != (one.size, one.changed_ns):
            self._unfinished[one.name] = _Seen(one.size, one.changed_ns, self.clock_s())
            return False
        return self.clock_s() - seen.since_s >= SETTLES_WITHIN_S

    def _clean(self, batch_id: int, present: set[str]) -> None:
        """Remove files that were read, once the checkpoint cannot go back before that batch, or sooner when there are many."""
        assert self._taken is not None
        if self.source.after_reading == "keep":
            return
        done = ((one.batch_id, name, one.end) for name, one in self._taken.items() if name in present and one.batch_id < batch_id)
        held, removed = 0, set()
        for by, name, end in sorted(done, reverse=True):
            held += end
            if by >= batch_id - self.kept and held <= self.source.max_bytes_per_trigger:
                continue
            try:
                if (self.folder / name).stat().st_size <= end:
                    self._remove(name)
                    removed.add(name)
            except FileNotFoundError:
                present.discard(name)
            except OSError as error:
                self._log_once(name, "spool_file_not_removed", error)
        if removed:
            # A removal that was not synced may be undone by a power cut: do not forget the file until it is synced.
            sync_folder(self.folder)
            present -= removed
            for name in removed:
                del self._taken[name]

    def _remove(self, name: str) -> None:
        path = self.folder / name
        if self.source.archive_folder is None:
            path.unlink()
            return
        archive = local_folder(self.source.archive_folder)
        if archive is None:
            raise OSError(errno.EXDEV, "the archive is on another file system", self.source.archive_folder)
        make_folder(archive.path)
        move_durably(path, _place_in(archive.path, path))

    def _log_once(self, name: str, event: str, error: OSError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            _log.warning(event, path=printable(str(self.folder / name)), error=error.strerror or str(error))


def _place_in(archive: Path, path: Path) -> Path:
    """Return where a file goes: under its own name, with a number where an earlier file has that. A copy of it is replaced."""
    for number in count(1):
        place = archive / path.name if number == 1 else archive / f"{path.stem}.{number}{path.suffix}"
        if not place.exists() or filecmp.cmp(path, place, shallow=False):
            return place
    raise AssertionError
