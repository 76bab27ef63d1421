"""Every point of a run at which something can go wrong, and the result after a restart."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.crash.run import BATCHES, SPARED, Run
from tests.crash.shim import KILLED, Mode, Operation, Shim, modes_of

SEGMENT: Final = 5
"""Batches per process. The run's state is saved between segments, so that testing a point costs a few batches, not all."""
_TRIES: Final = 5
_FAILED: Final = 1


class Point(NamedTuple):
    """One operation of a process that runs a segment, and the fault that happens there."""

    segment: int
    number: int
    operation: Operation
    mode: Mode


@dataclass
class Undisturbed:
    """The run without a fault: the folder before each segment, each segment's operations, and the result one batch later."""

    folder: Path
    operations: list[list[Operation]]
    results: list[dict[str, Any]]

    def points(self) -> Iterator[Point]:
        """Return all points."""
        for segment, operations in enumerate(self.operations):
            for number, operation in enumerate(operations):
                for mode in modes_of(operation):
                    yield Point(segment, number, operation, mode)


def undisturbed(folder: Path) -> Undisturbed:
    """Run all batches in one process, and again in one process per segment; both must have the same result."""
    whole = folder / "whole"
    in_one = _in_child(folder, lambda: _result(whole, BATCHES))
    operations, results = [], []
    now = folder / "now"
    for segment in range(BATCHES // SEGMENT):
        now.mkdir(exist_ok=True)
        shutil.copytree(now, folder / f"before-{segment}")
        body = _in_child(folder, lambda segment=segment: _counted(now, segment))  # type: ignore[misc] # a default binds it
        operations.append(body["operations"])
        shutil.copytree(now, folder / "after")
        results.append(_in_child(folder, lambda segment=segment: _result(now, _last(segment) + 1)))  # type: ignore[misc]
        shutil.rmtree(now)
        (folder / "after").rename(now)
    assert results[-1] == in_one
    return Undisturbed(folder, operations, results)


def problem(run: Undisturbed, point: Point) -> str | None:
    """Return how the result differs from the undisturbed run after a fault at `point` and a restart, or None."""
    folder = run.folder / "now"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run.folder / f"before-{point.segment}", folder)
    last = _last(point.segment)
    code = _child(run.folder, lambda: _disturbed(folder, point, last))
    if code not in ((0,) if point.mode == "fail" else (KILLED,)):
        return f"the process ended with {code}: {(run.folder / 'words').read_text() if code == _FAILED else ''}"
    try:
        result = _in_child(run.folder, lambda: _result(folder, last + 1))
    except RuntimeError as error:
        return str(error)
    wanted = run.results[point.segment]
    wrong = [name for name in wanted if result[name] != wanted[name]]
    return "; ".join(f"{name}: {_first_difference(result[name], wanted[name])}" for name in wrong) or None


def _first_difference(got: Any, wanted: Any) -> str:
    if isinstance(got, list) and isinstance(wanted, list):
        for n, (one, other) in enumerate(zip(got, wanted, strict=False)):
            if one != other:
                return f"line {n} of {len(got)} ({len(wanted)} wanted) is {str(one)[:300]}, not {str(other)[:300]}"
        return f"{len(got)} lines, not {len(wanted)}: {(got[len(wanted) :] or wanted[len(got) :])[0][:300]}"
    return f"{str(got)[:600]}, not {str(wanted)[:600]}"


def _last(segment: int) -> int:
    return (segment + 1) * SEGMENT - 1


def _result(folder: Path, last: int) -> dict[str, Any]:
    run = Run(folder)
    run.until(last)
    return run.result()


def _counted(folder: Path, segment: int) -> dict[str, Any]:
    shim = Shim(folder, SPARED)
    run = Run(folder, shim.operation)
    shim.install()
    run.until(_last(segment))
    return {"operations": list(shim.log)}


def _disturbed(folder: Path, point: Point, last: int) -> None:
    shim = Shim(folder, SPARED, point.number, point.mode)
    runs = Run(folder, shim.operation)
    shim.install()
    for attempt in range(_TRIES):
        try:
            runs.until(last)
        except OSError:
            # The job does the same when a disk is full: the query restarts.
            if point.mode != "fail" or attempt == _TRIES - 1:
                raise
        else:
            return


def _in_child(folder: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `work` in a child process. Raises `RuntimeError` with the child's traceback."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    code = _child(folder, lambda: answer.write_text(json.dumps(work())))
    body: dict[str, Any] = json.loads(answer.read_text()) if answer.exists() else {}
    if code or not body:
        raise RuntimeError(f"it does not go on: {Path(folder, 'words').read_text() if code else 'nothing was answered'}")
    return body


def _no_fsync(fd: object) -> None:
    del fd


def _child(folder: Path, work: Callable[[], object]) -> int:
    """Run `work` in a child process and return its exit code; its traceback is in the file `words`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = _FAILED
    # Power cuts are simulated, so there is no need to wait for the disk.
    os.fsync = _no_fsync
    try:
        work()
        code = 0
    except BaseException:
        descriptor = os.open(folder / "words", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, traceback.format_exc()[-3_000:].encode())
    finally:
        os._exit(code)
