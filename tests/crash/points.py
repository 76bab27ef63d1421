"""Every point of a run at which something can go wrong, and the run without a fault to compare with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.crash.children import result_of
from tests.crash.run import BATCHES, SPARED, Run
from tests.crash.shim import Mode, Operation, Shim, modes_of

SEGMENT: Final = 5
"""Batches per process. The folder is copied between segments, so that testing a point costs a few batches, not all."""
SEGMENTS: Final = BATCHES // SEGMENT


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
    began: list[list[int]]
    """By segment: the number of operations before its start (0) and before each of its batches."""
    results: list[dict[str, Any]]

    def points(self) -> Iterator[Point]:
        """Return all points."""
        for segment, operations in enumerate(self.operations):
            for number, operation in enumerate(operations):
                for mode in modes_of(operation):
                    yield Point(segment, number, operation, mode)

    def before(self, segment: int) -> Path:
        """Return the copy of the run's folder before a segment."""
        return self.folder / f"before-{segment}"


def undisturbed(folder: Path) -> Undisturbed:
    """Run all batches in one process, and again in one process per segment; both must have the same result."""
    whole = folder / "whole"
    in_one = result_of(folder, lambda: result(whole, BATCHES))
    run = Undisturbed(folder, [], [], [])
    now = folder / "now"
    now.mkdir()
    for segment in range(SEGMENTS):
        shutil.copytree(now, run.before(segment))
        counted = result_of(folder, lambda segment=segment: _counted(now, segment))  # type: ignore[misc] # a default binds it
        run.operations.append(counted["operations"])
        run.began.append(counted["began"])
        shutil.copytree(now, folder / "after")
        run.results.append(result_of(folder, lambda segment=segment: result(now, last_of(segment) + 1)))  # type: ignore[misc]
        shutil.rmtree(now)
        (folder / "after").rename(now)
    assert run.results[-1] == in_one
    return run


def last_of(segment: int) -> int:
    """Return the last batch of a segment."""
    return (segment + 1) * SEGMENT - 1


def result(folder: Path, last: int) -> dict[str, Any]:
    """Start the job, continue up to the batch `last`, and return what must be the same whatever happened."""
    run = Run(folder)
    run.until(last)
    return run.result()


def _counted(folder: Path, segment: int) -> dict[str, Any]:
    shim = Shim(folder, SPARED)
    run = Run(folder, shim.operation)
    shim.install()
    began = [0]
    run.until(last_of(segment), lambda: began.append(len(shim.log)))
    return {"operations": shim.log, "began": began}
