"""Before a query starts, roll the checkpoint back to the last intact batch if the latest one is damaged.

Nothing is lost as long as the sources still hold what came since: the batches that are rolled back run again from the
same states and the same memory of the judge, with the same results.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import structlog

from streaming.checkpoint.memory_store import FOLDER as MEMORIES
from streaming.checkpoint.memory_store import SEED, memory_file
from streaming.checkpoint.offset_log import COMMITS, batch_ids
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.checkpoint.seed import read_seed, seed_damaged
from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.checkpoint.spark_state import changelog_is_whole, snapshot_is_whole
from streaming.checkpoint.state_files import FOLDER as STATES
from streaming.checkpoint.state_files import StateDamaged, forget_verified_files
from streaming.checkpoint.tick_log import FOLDER as TICKS
from streaming.checkpoint.versions import FOLDER as VERSIONS
from streaming.checkpoint.versions import LedgerDamaged, VersionLedger
from streaming.errors import CheckpointMismatch
from streaming.folder import LocalFolder, make_folder, remove_scratch_files, sync_folder
from streaming.judge.memory.memory import JudgeMemory
from streaming.spool.ledger import FOLDER as SPOOLED
from streaming.spool.ledger import SpoolLedger

METADATA: Final = "metadata"
"""Spark's file with the id of the query."""
UNDONE: Final = "undone"
"""The folder for entries of batches that were rolled back."""

_WRITTEN: Final = (MEMORIES, VERSIONS, SPOOLED, OFFSETS, TICKS)
"""The folders with files that the service writes, besides the outboxes and the states."""

_UNFINISHED_PLAN: Final = re.compile(r"\.{1,2}\d+\.[0-9a-f-]{36}\.tmp(\.crc)?")
"""The name under which Spark writes a plan before it renames it, and the name of its checksum."""

_log = structlog.get_logger(__name__)


def recover(checkpoint: Path) -> int | None:
    """Roll back to the last intact batch if the last committed one is damaged; return that batch, None if nothing is damaged.

    What cannot be read of the batch after it is dropped: the batch is planned anew. Raises `CheckpointMismatch` when no batch is
    intact.
    """
    _remove_unfinished_plans(checkpoint)
    _renew_unreadable_id(checkpoint)
    back_to = _go_back_if_damaged(checkpoint)
    _drop_unreadable_plans(checkpoint)
    return back_to


def remove_unfinished_files(checkpoint: Path) -> None:
    """Remove what killed processes left of files they were writing. Call it under the lock of the checkpoint, before any write.

    Their names hold the process id, so a crash loop adds more and more of them. Unneeded states are deleted with each batch.
    """
    folders = [checkpoint, *(checkpoint / name for name in _WRITTEN), *checkpoint.glob("outbox/*/")]
    if removed := sum(map(remove_scratch_files, folders)):
        _log.info("unfinished_files_removed", files=removed, effect="none: their writers were ended before they were complete")


def _remove_unfinished_plans(checkpoint: Path) -> None:
    """Remove what Spark left of plans that it was writing when the disk was full, or when it was killed.

    While there is no batch, Spark refuses a checkpoint with such a file.
    """
    left = [path for path in (checkpoint / OFFSETS).glob(".*.tmp*") if _UNFINISHED_PLAN.fullmatch(path.name)]
    for path in left:
        path.unlink(missing_ok=True)
    if left:
        _log.info("unfinished_files_removed", files=len(left), effect="none: the batches are planned anew")


def _go_back_if_damaged(checkpoint: Path) -> int | None:
    forget_verified_files()
    committed = batch_ids(LocalFolder(checkpoint / COMMITS))
    ledger = VersionLedger(LocalFolder(checkpoint / VERSIONS))
    if not committed:
        _look_at_seed(checkpoint)
    if not committed or not ledger.batches or committed[-1] < ledger.batches[0]:
        # A new checkpoint, or one not yet run by a release that keeps a ledger.
        return None
    problems = problems_of(checkpoint, ledger, committed[-1])
    if not problems:
        return None
    for batch_id in reversed(committed[:-1]):
        if batch_id in ledger.batches and not problems_of(checkpoint, ledger, batch_id):
            _go_back(checkpoint, batch_id, committed[-1])
            _log.error(
                "checkpoint_gone_back",
                damaged_batch=committed[-1],
                problem="; ".join(problems),
                to_batch=batch_id,
                effect="the batches in between run again from the sources; what these no longer hold is lost",
            )
            return batch_id
    raise CheckpointMismatch(
        f"the checkpoint {checkpoint} is damaged ({'; '.join(problems)}), and no earlier batch in it is intact",
        "Restore a copy of it, or set spark.checkpoint_dir to a new folder: the state is built again from what the sources hold",
    )


def _drop_unreadable_plans(checkpoint: Path) -> None:
    """Move aside what cannot be read about a batch that is not committed.

    Spark does not flush its log to disk: a power cut leaves an empty file for the batch it had just begun, and Spark would not
    start with it.
    """
    committed = max(batch_ids(LocalFolder(checkpoint / COMMITS)), default=-1)
    for batch_id in batch_ids(LocalFolder(checkpoint / OFFSETS)):
        if batch_id > committed and not _is_whole(checkpoint / OFFSETS / str(batch_id)):
            aside = checkpoint / UNDONE / f"{batch_id:012d}-unreadable"
            make_folder(aside)
            for name in (str(batch_id), f".{batch_id}.crc"):
                if (checkpoint / OFFSETS / name).exists():
                    (checkpoint / OFFSETS / name).replace(aside / name)
            _log.warning("unreadable_batch_dropped", batch_id=batch_id, effect="the batch is planned again; nothing is lost")


def _renew_unreadable_id(checkpoint: Path) -> None:
    """Give the query another id if its own cannot be read, or is gone.

    Spark does not flush it: a power cut before the first batch leaves an empty file, and Spark would not start with it. Nothing
    depends on the id, but Spark demands one where there are batches.
    """
    folder = LocalFolder(checkpoint)
    content = folder.read(METADATA)
    wanted = content is not None or bool(batch_ids(LocalFolder(checkpoint / OFFSETS)))
    if wanted and not _has_id(content or b""):
        rewrite_spark_file(folder, METADATA, json.dumps({"id": str(uuid4())}).encode())
        _log.warning("unreadable_query_id_replaced", path=str(checkpoint / METADATA), effect="none: it only names the query")


def _has_id(metadata: bytes) -> bool:
    try:
        UUID(json.loads(metadata)["id"])
        return True
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _look_at_seed(checkpoint: Path) -> None:
    seed = read_seed(checkpoint)
    if seed is None:
        return
    try:
        for file in [file for files in seed.states.values() for file in files]:
            file.read(checkpoint / STATES)
        memory = LocalFolder(checkpoint / MEMORIES).read(SEED)
        if memory is not None:
            JudgeMemory.from_bytes(memory)
    except (StateDamaged, ValueError) as error:
        raise seed_damaged(checkpoint, str(error)) from error


def problems_of(checkpoint: Path, ledger: VersionLedger, batch_id: int) -> list[str]:
    """Return which files of batch `batch_id` are missing or damaged; empty when the next batch can continue from it."""
    return list(_problems(checkpoint, ledger, batch_id))


def _problems(checkpoint: Path, ledger: VersionLedger, batch_id: int) -> Iterator[str]:
    try:
        version = ledger.read(batch_id)
    except LedgerDamaged as error:
        yield str(error)
        return
    for shard in version.shards.values():
        for file in shard.files:
            try:
                file.read(checkpoint / STATES)
            except StateDamaged as error:
                yield str(error)
    memory = LocalFolder(checkpoint / MEMORIES).read(memory_file(batch_id))
    try:
        JudgeMemory.from_bytes(memory if memory is not None else b"")
    except ValueError as error:
        yield f"the judge's memory of batch {batch_id}: {'it is gone' if memory is None else error}"
    for log in (OFFSETS, COMMITS):
        if not _is_whole(checkpoint / log / str(batch_id)):
            yield f"Spark's {log}/{batch_id} is damaged"
    yield from SpoolLedger(LocalFolder(checkpoint / SPOOLED), kept=0).problems(version.spool)
    for partition in sorted(checkpoint.glob("state/0/[0-9]*")):
        if not _has_store(partition, batch_id + 1):
            yield f"Spark's own state of partition {partition.name} after batch {batch_id} is missing or damaged"


def _is_whole(log: Path) -> bool:
    """Whether the log has a line with the format version, followed by JSON."""
    try:
        first, second, *_ = log.read_text().splitlines()
        return first.startswith("v") and isinstance(json.loads(second), dict)
    except (OSError, ValueError):
        return False


def _has_store(partition: Path, version: int) -> bool:
    """Whether Spark can load a version of its own state: a snapshot, and every change since."""
    while version > 0:
        if snapshot_is_whole(partition / f"{version}.zip"):
            return True
        if not changelog_is_whole(partition / f"{version}.changelog"):
            return False
        version -= 1
    return True


def _go_back(checkpoint: Path, batch_id: int, from_batch: int) -> None:
    """Move the files of later batches to `undone`. The offsets of the next batch stay, so that it reads the same records."""
    aside = checkpoint / UNDONE / f"{from_batch:012d}-to-{batch_id:012d}"
    shutil.rmtree(aside, ignore_errors=True)
    # Move commits last: after an earlier crash or power cut, the checkpoint is examined and rolled back again.
    for name, keep in (
        (MEMORIES, batch_id),
        (VERSIONS, batch_id),
        (SPOOLED, batch_id + 1),
        (OFFSETS, batch_id + 1),
        (COMMITS, batch_id),
    ):
        make_folder(aside / name)
        if not (checkpoint / name).is_dir():
            continue
        for path in (checkpoint / name).iterdir():
            number = path.name.removeprefix(".").split(".")[0]
            if number.isdigit() and int(number) > keep:
                path.rename(aside / name / path.name)
        # Moves in different folders may otherwise reach the disk in any order.
        sync_folder(aside / name)
        sync_folder(checkpoint / name)
