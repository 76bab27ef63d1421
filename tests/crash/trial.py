"""Faults at points of a run: each in a process of its own, followed by a restart.

One process runs a segment without a fault. It is forked for each point: at the operation at which the child is to be killed, or
before the batch if the child has to do part of the operation or go on after it. The child has its memory, its count of
operations and a copy of its folder. What it leaves is restarted in a process that remembers nothing. So no point repeats the
batches before its own.

A restart depends on nothing but the folder. Two points of a segment that leave the same folder, byte for byte (an fsync, for
one, changes no byte), are restarted once. State files have random names, so within a segment these are drawn from a seed. Of an
incomplete file that was never renamed, only the name counts: a restart that opened it would fail.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.crash.children import HANGS_AFTER_S, ended, exit_code, result_of, start
from tests.crash.points import Point, Undisturbed, last_of, result
from tests.crash.run import SPARED, Run
from tests.crash.shim import Operation, Shim

_TRIES: Final = 5
_LASTS_S: Final = 3 * 3_600
_AT_ONCE: Final = ("kill", "power")
"""Faults after which the child does nothing, so that it is forked at the operation, with files open."""
_SCRATCH: Final = re.compile(r"\.\d+\.part$")
"""How the name of an incomplete file ends: with the id of the process that wrote it."""


@dataclass(frozen=True)
class Outcome:
    """How the result differed from the undisturbed run, or None; `restarted` unless another point left the same folder."""

    point: Point
    wrong: str | None
    restarted: bool


def tried(run: Undisturbed, points: Sequence[Point], processes: int) -> list[Outcome]:
    """Try points, in several processes at once."""
    folders = [run.folder / f"process-{n}" for n in range(processes)]
    started = []
    for n, folder in enumerate(folders):
        folder.mkdir()
        part = points[n * len(points) // processes : (n + 1) * len(points) // processes]
        started.append(start(folder, lambda part=part, folder=folder: _try(run, part, folder), _LASTS_S))  # type: ignore[misc]
    for folder, code in zip(folders, map(exit_code, started), strict=True):
        assert code == 0, ended(folder, code)
    bodies = [json.loads(line) for folder in folders for line in (folder / "outcomes").read_text().splitlines()]
    outcomes = [Outcome(Point(*point), wrong, restarted) for point, wrong, restarted in bodies]
    assert len(outcomes) == len(points)
    assert {outcome.point for outcome in outcomes} == set(points)
    return outcomes


def _try(run: Undisturbed, points: Sequence[Point], folder: Path) -> None:
    with (folder / "outcomes").open("w", buffering=1) as file:
        for segment, chosen in groupby(points, lambda point: point.segment):
            for outcome in _segment(run, list(chosen), folder, segment):
                file.write(json.dumps([outcome.point, outcome.wrong, outcome.restarted]) + "\n")


def _segment(run: Undisturbed, points: Sequence[Point], folder: Path, segment: int) -> Iterator[Outcome]:
    now, kept = folder / "now", folder / "kept"
    shutil.copytree(run.before(segment), now)
    here, there = multiprocessing.Pipe()
    job = _Job(now, there, points, run.began[segment], run.operations[segment])
    process = start(folder, lambda: job.run(last_of(segment)), _LASTS_S)
    there.close()
    restarts: dict[bytes, str | None] = {}
    try:
        for _ in points:
            point: Point = here.recv()
            # The process has its files open, so the copy is for the child.
            now.rename(kept)
            shutil.copytree(kept, now)
            here.send("go on")
            code = here.recv()
            if code != (0 if point.mode == "fail" else -signal.SIGKILL):
                yield Outcome(point, ended(folder, code), restarted=False)
            else:
                left = _digest(now)
                new = left not in restarts
                if new:
                    restarts[left] = _problem(run, segment, folder)
                yield Outcome(point, restarts[left], new)
            shutil.rmtree(now)
            kept.rename(now)
            here.send("go on")
    except EOFError as error:
        raise RuntimeError(ended(folder, exit_code(process))) from error
    code = exit_code(process)
    assert code == 0, ended(folder, code)
    shutil.rmtree(now)


def _digest(folder: Path) -> bytes:
    """Digest what a restart reads: names without the ids of dead processes, contents and, of spool files, times."""
    digest = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        name, is_scratch = _SCRATCH.subn(".part", str(path.relative_to(folder)))
        time_ns = path.stat().st_mtime_ns if name.startswith("spool/") else 0
        content = path.read_bytes() if path.is_file() and not is_scratch else b""
        digest.update(json.dumps([name, time_ns, path.is_file(), len(content)]).encode() + content)
    return digest.digest()


def _problem(run: Undisturbed, segment: int, folder: Path) -> str | None:
    try:
        found = result_of(folder, lambda: _restarted(folder / "now", last_of(segment) + 1))
    except RuntimeError as error:
        return str(error)
    wanted = run.results[segment]
    wrong = [name for name in wanted if found[name] != wanted[name]]
    return "; ".join(f"{name}: {_first_difference(found[name], wanted[name])}" for name in wrong) or None


def _restarted(folder: Path, last: int) -> dict[str, Any]:
    opened = io.open

    def checked(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        assert "w" in mode or not _SCRATCH.search(str(path)), f"{path} was opened"
        return opened(path, mode, *arguments, **named)

    io.open = builtins.open = checked  # type: ignore[assignment] # narrower
    return result(folder, last)


def _first_difference(got: Any, wanted: Any) -> str:
    if isinstance(got, list) and isinstance(wanted, list):
        for n, (one, other) in enumerate(zip(got, wanted, strict=False)):
            if one != other:
                return f"line {n} of {len(got)} ({len(wanted)} wanted) is {str(one)[:300]}, not {str(other)[:300]}"
        return f"{len(got)} lines, not {len(wanted)}: {(got[len(wanted) :] or wanted[len(got) :])[0][:300]}"
    return f"{str(got)[:600]}, not {str(wanted)[:600]}"


class _Job:
    """The process that runs a segment; each fork of it becomes a process with a fault."""

    def __init__(
        self, folder: Path, parent: Connection, points: Sequence[Point], began: Sequence[int], operations: Sequence[Operation]
    ) -> None:
        self._folder = folder
        self._parent = parent
        self._at_operations = defaultdict(list)
        self._at_batches = defaultdict(list)
        for point in points:
            if point.mode in _AT_ONCE:
                self._at_operations[point.number].append(point)
            else:
                self._at_batches[max(n for n in began if n <= point.number)].append(point)
        self._operations = operations
        self._shim = Shim(folder, SPARED, before=lambda: self._fork(self._at_operations))
        self._point: Point | None = None

    def run(self, last: int) -> None:
        """Run the segment; a fork ends at its fault, or in the mode `fail` after the segment."""
        draw = random.Random(last)
        uuid.uuid4 = lambda: uuid.UUID(int=draw.getrandbits(128), version=4)
        job = Run(self._folder, self._shim.operation)
        self._shim.install()
        self._fork(self._at_batches)
        for attempt in range(_TRIES):
            try:
                job.until(last, lambda: self._fork(self._at_batches))
            except OSError:
                # The job does the same when a disk is full: the query restarts.
                if self._point is None or self._point.mode != "fail" or attempt == _TRIES - 1:
                    raise
            else:
                break
        same = len(self._operations) if self._point is None else self._point.number + 1
        assert self._shim.log[:same] == self._operations[:same]

    def _fork(self, stages: dict[int, list[Point]]) -> None:
        """Fork for each point of this stage; a fork returns with its fault set, and does not fork again."""
        for point in stages.pop(len(self._shim.log), ()) if self._point is None else ():
            self._parent.send(point)
            self._parent.recv()
            pid = os.fork()
            if not pid:
                signal.alarm(HANGS_AFTER_S)
                self._point = point
                self._shim.at, self._shim.mode = point.number, point.mode
                return
            self._parent.send(exit_code(pid))
            self._parent.recv()
