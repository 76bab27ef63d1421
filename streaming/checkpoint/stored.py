"""Read a checkpoint offline: without Spark, and without changing anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.checkpoint.manifest import Manifest, read_manifest
from streaming.checkpoint.memory_store import FOLDER as MEMORIES
from streaming.checkpoint.memory_store import SEED, memory_file
from streaming.checkpoint.offset_log import COMMITS, Partition, batch_ids, batch_time_ms, kafka_offsets
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.checkpoint.recovery import problems_of
from streaming.checkpoint.seed import read_seed
from streaming.checkpoint.shards import shard_indexes
from streaming.checkpoint.state_files import FOLDER as STATES
from streaming.checkpoint.state_files import SEGMENT, StateDamaged, StateFile, unpacked_files
from streaming.checkpoint.versions import FOLDER as VERSIONS
from streaming.checkpoint.versions import ShardVersion, Version, VersionLedger
from streaming.core.columns import UnreadableBlob, unpack_columns
from streaming.core.state.state import Packed, ShardState
from streaming.delivery.outbox import FOLDER as OUTBOXES
from streaming.delivery.outbox import waiting_records
from streaming.errors import CheckpointMismatch
from streaming.folder import LocalFolder
from streaming.judge.memory.memory import JudgeMemory

_HEAD: Final = re.compile(r"(\d+)-[0-9a-f]{32}\.state")


@dataclass(frozen=True)
class Stored:
    """The last intact batch of a checkpoint."""

    path: Path
    manifest: Manifest
    batch_id: int | None
    """None for a checkpoint that was created from another one and has not run yet."""
    now_ms: int
    """When that batch was judged, in epoch milliseconds."""
    files: Mapping[int, tuple[StateFile, ...]]
    """Files by the shard's key."""
    memory: bytes | None
    kafka: Mapping[Partition, int]
    """The offsets from which the Kafka source continues."""
    lost: Mapping[str, int]

    def packed(self, key: int) -> Packed:
        """Return one shard's packed state. Raises `StateDamaged`."""
        return unpacked_files(self.path / STATES, self.files[key])

    def states(self) -> dict[int, ShardState]:
        """Return every shard's state. Raises `StateDamaged` or `UnreadableBlob`."""
        return {key: ShardState.unpack(self.packed(key)) for key in self.files}

    def states_by_index(self) -> dict[int, ShardState]:
        """Return the states by the index of their shard, as `states` does."""
        index_of = shard_indexes(self.manifest.checkpoint.shards)
        return {index_of[key]: state for key, state in self.states().items()}

    def judge_memory(self) -> JudgeMemory:
        """Return the judge's memory. Raises `ValueError`."""
        return JudgeMemory.from_bytes(self.memory) if self.memory is not None else JudgeMemory.empty()

    def waiting(self) -> dict[str, int]:
        """Return the number of records waiting for each destination."""
        return {folder.path.name: records for folder in self.outboxes() if (records := waiting_records(folder))}

    def outboxes(self) -> list[LocalFolder]:
        """Return the folder of each destination."""
        return [LocalFolder(path) for path in sorted((self.path / OUTBOXES).glob("*/"))]


def manifest_of(checkpoint: Path) -> Manifest:
    """Return the manifest of a checkpoint. Raises `CheckpointMismatch` for a missing folder, another folder, or a file."""
    manifest = read_manifest(LocalFolder(checkpoint), str(checkpoint)) if checkpoint.is_dir() else None
    if manifest is None:
        raise CheckpointMismatch(f"{checkpoint} is not a queuewatch checkpoint", "Give the folder set in spark.checkpoint_dir")
    return manifest


def open_stored(checkpoint: Path) -> Stored:
    """Open the last intact batch of a checkpoint. Raises `CheckpointMismatch` for anything else, or when no batch is intact."""
    manifest = manifest_of(checkpoint)
    committed = batch_ids(LocalFolder(checkpoint / COMMITS))
    ledger = VersionLedger(LocalFolder(checkpoint / VERSIONS))
    if not committed:
        seed = read_seed(checkpoint)
        if seed is None:
            raise CheckpointMismatch(f"the checkpoint {checkpoint} holds no batch yet", "Let queuewatch run on it first")
        memory = LocalFolder(checkpoint / MEMORIES).read(SEED)
        return Stored(
            path=checkpoint,
            manifest=manifest,
            batch_id=None,
            now_ms=0,
            files=seed.states,
            memory=memory,
            kafka=seed.kafka,
            lost=seed.lost,
        )
    for batch_id in reversed(committed):
        if not ledger.batches:
            version = _without_ledger(checkpoint, batch_id, manifest.checkpoint.shards)
        elif batch_id in ledger.batches and not problems_of(checkpoint, ledger, batch_id):
            version = ledger.read(batch_id)
        else:
            version = None
        if version is not None:
            logged = (checkpoint / OFFSETS / str(batch_id)).read_bytes()
            memory = LocalFolder(checkpoint / MEMORIES).read(memory_file(batch_id))
            files = {key: shard.files for key, shard in version.shards.items() if shard.files}
            return Stored(
                path=checkpoint,
                manifest=manifest,
                batch_id=batch_id,
                now_ms=version.now_ms,
                files=files,
                memory=memory,
                kafka=kafka_offsets(logged),
                lost=dict(version.lost),
            )
    raise CheckpointMismatch(f"no batch in the checkpoint {checkpoint} is intact", "Restore a copy of it")


def verify(checkpoint: Path) -> Iterator[str]:
    """Yield the problems of a checkpoint; none when the last batch is intact and readable. Raises as `open_stored` does."""
    manifest = manifest_of(checkpoint)
    committed = batch_ids(LocalFolder(checkpoint / COMMITS))
    ledger = VersionLedger(LocalFolder(checkpoint / VERSIONS))
    if committed and ledger.batches and committed[-1] >= ledger.batches[0]:
        yield from problems_of(checkpoint, ledger, committed[-1])
    stored = open_stored(checkpoint)
    if len(stored.files) != manifest.checkpoint.shards:
        yield f"{len(stored.files)} of {manifest.checkpoint.shards} shards have a state"
    index_of = shard_indexes(manifest.checkpoint.shards)
    for key in stored.files:
        shard = index_of.get(key, key)
        try:
            packed = stored.packed(key)
            ShardState.unpack(packed).queues.durations.pairs()
            # A segment is named by its content, whichever release wrote it.
            wrong = [name for name, body in packed.segments.items() if hashlib.blake2b(body, digest_size=16).hexdigest() != name]
            yield from (f"shard {shard}: the segment {name} has other bytes than were written" for name in wrong)
        except (StateDamaged, UnreadableBlob, ValueError, KeyError) as error:
            yield f"shard {shard}: {error}"
    try:
        stored.judge_memory()
    except ValueError as error:
        yield str(error)


def _without_ledger(checkpoint: Path, batch_id: int, shards: int) -> Version | None:
    """Find the files of a batch of a release without a ledger, using the time that each state records."""
    try:
        now_ms = batch_time_ms((checkpoint / OFFSETS / str(batch_id)).read_bytes())
    except (OSError, ValueError):
        return None
    found: dict[int, ShardVersion] = {}
    for path in sorted((checkpoint / STATES).glob("*.state")):
        match = _HEAD.fullmatch(path.name)
        segments = _segments_of(path, now_ms) if match is not None else None
        if match is not None and segments is not None:
            files = (StateFile(path.name), *(StateFile(f"{name}{SEGMENT}") for name in segments))
            found[int(match[1])] = ShardVersion(files, path.stat().st_size)
    return Version(batch_id, now_ms, found) if len(found) == shards else None


def _segments_of(head: Path, now_ms: int) -> Sequence[str] | None:
    """Return the segments of a state, None when it is damaged or of another time."""
    try:
        header = unpack_columns(head.read_bytes())[1]
        return [entry[0] for entry in header["frozen"]] if header["now"] == now_ms else None
    except (UnreadableBlob, ValueError, KeyError, OSError):
        return None
