"""`queuewatch state reshard`: write a checkpoint as a new one with another number of shards."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sinks.alertmanager.ledger_file import LEDGER_FILE
from streaming.checkpoint.manifest import Checkpoint, write_manifest
from streaming.checkpoint.memory_store import FOLDER as MEMORIES
from streaming.checkpoint.memory_store import SEED
from streaming.checkpoint.order import order_of
from streaming.checkpoint.seed import Seed, read_seed, write_seed
from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.state_files import StateFile, state_keeper
from streaming.checkpoint.stored import Stored
from streaming.core.maintenance.placement import keep_latest_rows, out_of_place
from streaming.core.maintenance.reshard import reshard
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.state_reports import differences, report_of
from streaming.delivery.outbox import FOLDER as OUTBOXES
from streaming.delivery.outbox import carry_over
from streaming.errors import CheckpointMismatch
from streaming.folder import LocalFolder, write_durably
from streaming.spool.ledger import FOLDER as SPOOLED
from streaming.spool.ledger import SpoolLedger, Taken


def reshard_into(stored: Stored, target: Path, shards: int, settings: Settings) -> int:
    """Write the checkpoint `target`, which must not exist; return the number of messages in it.

    The new states are read back and must give the same totals and the same report as the old ones. Raises
    `CheckpointMismatch` when they do not, and when resharding is not possible.
    """
    if target.exists() and any(target.iterdir()):
        raise CheckpointMismatch(f"{target} is there already, and not empty", "Name a new folder")
    if target.resolve().is_relative_to(stored.path.resolve()):
        raise CheckpointMismatch(f"{target} is inside {stored.path}, and would be removed with it", "Name a folder outside of it")
    before = stored.states_by_index()
    moved = out_of_place(before, stored.manifest.checkpoint.shards, settings)
    if moved:
        keep_latest_rows(list(before.values()))
    expected = report_of(list(before.values()), settings, unordered=moved)
    made = reshard(list(before.values()), shards, settings)
    with _removed_on_failure(target):
        keeper = state_keeper(str(target))
        kept = {key: keeper.keep(key, state.pack()) for key, state in zip(shard_keys(shards), made, strict=True)}
        again = [ShardState.unpack(keeper.fetch(pointer)) for pointer in kept.values()]
        messages = sum(state.messages for state in again)
        if wrong := differences(expected, report_of(again, settings, unordered=moved), moved=moved):
            raise CheckpointMismatch(
                f"the states of {target} differ from those of {stored.path}: {', '.join(wrong[:5])}",
                "Keep the old checkpoint and report this, with it if you can",
            )
        if stored.memory is not None:
            (target / MEMORIES).mkdir(exist_ok=True)
            write_durably(target / MEMORIES / SEED, stored.memory)
        files = {key: tuple(map(StateFile.of, keeper.files_of(pointer))) for key, pointer in kept.items()}
        write_seed(target, Seed(files, stored.kafka, stored.lost, _continued_by(stored)))
        read = SpoolLedger(LocalFolder(stored.path / SPOOLED), kept=0).before(
            (stored.batch_id if stored.batch_id is not None else -1) + 1
        )
        if read:
            taken = {name: Taken(one.end, -1) for name, one in read.items()}
            SpoolLedger(LocalFolder(target / SPOOLED), kept=0).seed(taken)
        _carry_over_undelivered(stored, target)
        # Write the manifest last: without it the folder is not a checkpoint.
        write_manifest(
            LocalFolder(target), Checkpoint(uuid.uuid4().hex, shards, stored.manifest.checkpoint.sources), order_of(settings)
        )
    return messages


def _continued_by(stored: Stored) -> Mapping[str, int]:
    """Return what a checkpoint made from this one continues, as in its seed."""
    own = stored.manifest.checkpoint.id
    if stored.batch_id is not None:
        return {own: stored.batch_id + 1}
    seed = read_seed(stored.path)
    return {**(seed.continues if seed is not None else {}), own: 0}


def _carry_over_undelivered(stored: Stored, target: Path) -> None:
    """Copy what waits for a destination, and the alerts of Alertmanager. Batches after the last intact one run again."""
    for outbox in stored.outboxes():
        new = LocalFolder(target / OUTBOXES / outbox.path.name)
        carry_over(outbox, new, stored.batch_id if stored.batch_id is not None else -1)
        if (alerts := outbox.read(LEDGER_FILE)) is not None:
            new.write(LEDGER_FILE, alerts)


@contextmanager
def _removed_on_failure(target: Path) -> Iterator[None]:
    """Create the folder, which may be there but empty; on failure remove what was written, so that the next attempt can begin."""
    existed = target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for entry in target.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if not existed:
            target.rmdir()
        raise


def files_read_by_spark(checkpoint: Path) -> list[str]:
    """Return the spool files that Spark's own file source has read, which a new checkpoint cannot take over.

    That source reads folders behind a URI; in earlier releases it read every folder.
    """
    if any(LocalFolder(checkpoint / SPOOLED).names()):
        return []
    found: list[str] = []
    for log in sorted((checkpoint / "sources").glob("*/[0-9]*")):
        for line in log.read_text(errors="replace").splitlines()[1:]:
            try:
                body = json.loads(line)
            except ValueError:
                continue
            if isinstance(body, dict) and "path" in body:
                found.append(str(body["path"]))
    return found
