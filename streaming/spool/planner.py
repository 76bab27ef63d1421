"""Decide what the next batch reads of the spool folder, and what becomes of files that were read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from streaming.config.source import SpoolSource
from streaming.spool.cut import cut, is_finished
from streaming.spool.ledger import Plan, SpoolLedger, Taken, missing_of, take
from streaming.spool.pieces import Piece

MOST_PIECES: Final = 4_000
"""Of one batch."""
SETTLES_WITHIN_S: Final = 5.0
"""A file that does not end as a finished one does is read once it has not changed for so long."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Seen:
    """A file that seems to be written still."""

    size: int
    changed_ns: int
    since_s: float


@dataclass(frozen=True, slots=True)
class _Found:
    """A file with something left to read."""

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
    """Batches a checkpoint may go back: files they read are not removed yet."""
    waiting: int = 0
    """Files with something left to read, as of the last plan."""
    _taken: dict[str, Taken] | None = None
    _last: int = -1
    _unfinished: dict[str, _Seen] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _settled: set[str] = field(default_factory=set)
    """Files that were read and did not grow for many batches; they are not looked at again."""

    def plan(self, batch_id: int) -> Plan:
        """What a batch reads: the same for one that runs again. Kept in the checkpoint before it is answered.

        Raises `SpoolDamaged`, and `OSError` when the checkpoint does not take it.
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
        plan = Plan(batch_id, tuple(self._pieces(batch_id, present)))
        if plan.pieces:
            self.ledger.save(plan)
            take(self._taken, plan)
            if self.ledger.index(batch_id, self._taken, present):
                self._taken = {name: taken for name, taken in self._taken.items() if name in present}
        return plan

    def missing(self, plan: Plan) -> set[str]:
        """The files of a plan that are gone now, or shorter than they were."""
        sizes: dict[str, int] = {}
        for name in {piece.name for piece in plan.pieces}:
            try:
                sizes[name] = (self.folder / name).stat().st_size
            except FileNotFoundError:
                continue
        return missing_of(plan.pieces, sizes)

    def _names(self) -> set[str] | None:
        """The files there are; None when the folder cannot be listed, which is no reason to forget any."""
        matches = _matcher(self.source.pattern)
        try:
            with os.scandir(self.folder) as entries:
                names = {entry.name for entry in entries if entry.name[0] not in "._" and matches(entry.name) and entry.is_file()}
        except OSError as error:
            self._say_once("", "spool_folder_not_listed", error)
            return None
        self._refused &= names
        self._settled &= names
        self._unfinished = {name: seen for name, seen in self._unfinished.items() if name in names}
        return names

    def _pieces(self, batch_id: int, present: set[str]) -> Iterator[Piece]:
        found = sorted(self._found(batch_id, present), key=lambda one: (one.changed_ns, one.name))
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
                self._say_once(one.name, "spool_file_not_read", error)

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
        """Whether a file can be read now: it was written to its end, or nobody writes to it any more."""
        if is_finished(file, one.size):
            self._unfinished.pop(one.name, None)
            return True
        seen = self._unfinished.get(one.name)
        if seen is None or (seen.size, seen.changed_ns) != (one.size, one.changed_ns):
            self._unfinished[one.name] = _Seen(one.size, one.changed_ns, self.clock_s())
            return False
        return self.clock_s() - seen.since_s >= SETTLES_WITHIN_S

    def _clean(self, batch_id: int, present: set[str]) -> None:
        """Remove files that were read once the checkpoint cannot go back behind that batch, or sooner when they are many."""
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
                self._say_once(name, "spool_file_not_removed", error)
        if removed:
            # After a power cut a file may be back whose removal was not synced: until it is, the file is not forgotten.
            _fsync(self.folder)
            present -= removed
            for name in removed:
                del self._taken[name]

    def _remove(self, name: str) -> None:
        path = self.folder / name
        if self.source.archive_folder is None:
            path.unlink()
            return
        archive = Path(self.source.archive_folder)
        archive.mkdir(parents=True, exist_ok=True)
        shutil.move(path, archive / name)
        _fsync(archive)

    def _say_once(self, name: str, event: str, error: OSError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            _log.warning(event, path=str(self.folder / name), error=error.strerror or str(error))


def _fsync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """A shell pattern with alternatives in braces, as Hadoop's file systems know it."""
    alternatives = [re.compile(translate(one.replace("[^", "[!"))) for one in _expanded(pattern)]
    return lambda name: any(one.match(name) for one in alternatives)


def _expanded(pattern: str) -> Iterator[str]:
    opens = pattern.find("{")
    closes = pattern.find("}", opens)
    if opens < 0 or closes < 0:
        yield pattern
        return
    for choice in pattern[opens + 1 : closes].split(","):
        yield from _expanded(pattern[:opens] + choice + pattern[closes + 1 :])
