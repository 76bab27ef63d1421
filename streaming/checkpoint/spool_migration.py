"""Migrate checkpoints of releases in which Spark's file source read the spool folder: convert what it read to our own plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import structlog

from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.checkpoint.offset_log import batch_ids
from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.folder import Folder
from streaming.spool.ledger import Plan, SpoolLedger, Taken, take
from streaming.spool.pieces import Piece

_log = structlog.get_logger(__name__)


class _Logged(NamedTuple):
    """One of Spark's batch logs."""

    lines: list[str]
    line: int
    """The line of the file source; the number of its source is two less."""
    log_offset: int


def migrate(folder_of: Callable[[str], Folder], spool: Path, ledger: SpoolLedger) -> int:
    """Take over what Spark's file source has read, and remove that source from Spark's log; return the number of files.

    Does nothing in a checkpoint without such a source. After a crash, the migration is simply repeated.
    """
    offsets = folder_of(OFFSETS)
    logged = {batch_id: found for batch_id in batch_ids(offsets) if (found := _logged(offsets.read(str(batch_id))))}
    if not logged:
        return 0
    files = _files(folder_of(f"sources/{next(iter(logged.values())).line - 2}"))
    taken: dict[str, Taken] = {}
    before = -1
    for batch_id, log in sorted(logged.items()):
        read = [path for at, path in files if before < at <= log.log_offset]
        before = log.log_offset
        plan = Plan(batch_id, tuple(piece for path in read if (piece := _piece(path, spool)) is not None))
        take(taken, plan)
        # An existing plan is from an interrupted attempt, made when the previous batch's log still had this batch's start.
        if ledger.plan_of(batch_id) is None:
            ledger.save(plan)
    for batch_id, log in sorted(logged.items()):
        kept = [*log.lines[: log.line], *log.lines[log.line + 1 :]]
        rewrite_spark_file(offsets, str(batch_id), "\n".join(kept).encode())
    _log.info("spool_taken_over", files=len(taken), folder=str(spool), earlier="they were read by Spark's own file source")
    return len(taken)


def _logged(content: bytes | None) -> _Logged | None:
    lines = (content or b"").decode().splitlines()
    for number, line in enumerate(lines[2:], start=2):
        body = _json(line)
        if isinstance(body, dict) and set(body) == {"logOffset"}:
            return _Logged(lines, number, int(body["logOffset"]))
    return None


def _files(log: Folder) -> list[tuple[int, str]]:
    """Return every file the source has read: its own number of the batch, and the path."""
    found: dict[str, int] = {}
    for name in log.names():
        for line in (log.read(name) or b"").decode(errors="replace").splitlines()[1:]:
            body = _json(line)
            if isinstance(body, dict) and "path" in body:
                found[str(body["path"])] = int(body["batchId"])
    return sorted((at, path) for path, at in found.items())


def _piece(uri: str, spool: Path) -> Piece | None:
    """Return a piece for the whole file; None when it no longer exists."""
    path = Path(unquote(urlsplit(uri).path))
    try:
        return Piece(path.name, 0, (spool / path.name).stat().st_size)
    except FileNotFoundError:
        return None


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
