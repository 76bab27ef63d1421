"""What a checkpoint was made with, written into it: some of it can never change."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from streaming.spark.errors import CheckpointInUse, CheckpointMismatch
from streaming.spark.folder import Folder, LocalFolder

NAME: Final = "queuewatch.json"
LAYOUT: Final = 1
_LOCK: Final = ".queuewatch.lock"

_START_AFRESH = (
    "set spark.checkpoint_dir to a new folder: the job then builds its state again from the telemetry the source "
    "still holds (source.kafka.starting_offsets: earliest)"
)


@dataclass(frozen=True)
class Checkpoint:
    """The identity of a checkpoint."""

    id: str
    """Tells batch 7 of this checkpoint from batch 7 of another."""
    shards: int
    sources: tuple[str, ...]


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Keep other jobs of this machine off the checkpoint while the block lasts, where it is on a local disk.

    Raises `CheckpointInUse`.
    """
    if not isinstance(folder, LocalFolder):
        yield
        return
    folder.path.mkdir(parents=True, exist_ok=True)
    with (folder.path / _LOCK).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointInUse(
                f"another queuewatch works on the checkpoint {folder.path}",
                "Stop it, or give this one its own spark.checkpoint_dir",
            ) from error
        yield


def claim(folder: Folder, uri: str, *, shards: int, sources: Sequence[str]) -> Checkpoint:
    """Take the checkpoint in `folder` (at `uri`) into use; write its identity when it is new.

    `sources` names the kinds of source in the order they are read. Raises `CheckpointMismatch`.
    """
    found = find(folder, uri, shards=shards, sources=sources)
    if found is not None:
        return found
    made = Checkpoint(uuid.uuid4().hex, shards, tuple(sources))
    body = {"layout": LAYOUT, "id": made.id, "shards": shards, "sources": list(sources)}
    folder.write(NAME, json.dumps(body, indent=2).encode())
    return made


def find(folder: Folder, uri: str, *, shards: int, sources: Sequence[str]) -> Checkpoint | None:
    """The identity of the checkpoint, None for a new one.

    Raises `CheckpointMismatch` when it was made with other shards or sources, or by a release that keeps it
    differently.
    """
    content = folder.read(NAME)
    if content is None:
        return None
    try:
        body = json.loads(content)
        found = Checkpoint(str(body["id"]), int(body["shards"]), tuple(body["sources"]))
        layout = int(body["layout"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(f"{uri}/{NAME} cannot be read ({error})", f"Restore it, or {_START_AFRESH}") from error
    if layout != LAYOUT:
        raise CheckpointMismatch(
            f"the checkpoint {uri} has layout {layout}, this release of queuewatch writes {LAYOUT}",
            f"Use the release that wrote it, or {_START_AFRESH}",
        )
    if found.shards != shards:
        raise CheckpointMismatch(
            f"the checkpoint {uri} was made with spark.shards: {found.shards}, not {shards}, and the number of "
            "shards is fixed for the life of a checkpoint",
            f"Set spark.shards back to {found.shards}, or {_START_AFRESH}",
        )
    if found.sources != tuple(sources):
        raise CheckpointMismatch(
            f"the checkpoint {uri} was made with the sources {', '.join(found.sources)}, not {', '.join(sources)}",
            f"Configure the same sources again, or {_START_AFRESH}",
        )
    return found
