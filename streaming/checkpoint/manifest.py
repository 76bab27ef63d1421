"""The manifest of a checkpoint: its identity and formats, checked before Spark starts."""

from __future__ import annotations

import fcntl
import json
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from streaming.checkpoint.formats import BEFORE_THEY_WERE_LISTED, FORMATS, unreadable
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.errors import CheckpointInUse, CheckpointMismatch, CheckpointUnwritable
from streaming.folder import Folder, LocalFolder, local_folder, make_folder
from streaming.release import own_version

NAME: Final = "queuewatch.json"
LAYOUT: Final = 1
_LOCK: Final = ".queuewatch.lock"

START_AFRESH: Final = (
    "set spark.checkpoint_dir to a new folder: the job then builds its state again from the telemetry the source "
    "still holds (source.kafka.starting_offsets: earliest)"
)

Order = tuple[tuple[str, bool | None], ...]
"""Patterns of queue names, the first match wins, and whether they mark the queues as ordered; None: the name decides."""


@dataclass(frozen=True)
class Checkpoint:
    """The identity of a checkpoint."""

    id: str
    """Distinguishes batch 7 of this checkpoint from batch 7 of another."""
    shards: int
    sources: tuple[str, ...]


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Lock the checkpoint against other jobs on this machine inside the block, if it is on a local disk.

    Raises `CheckpointInUse`, and `CheckpointUnwritable` when the folder cannot be created or locked.
    """
    if not isinstance(folder, LocalFolder):
        yield
        return
    with ExitStack() as stack:
        try:
            make_folder(folder.path)
            handle = stack.enter_context((folder.path / _LOCK).open("w"))
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointInUse(
                f"another queuewatch is using the checkpoint {folder.path}",
                "Stop it, or give this one its own spark.checkpoint_dir",
            ) from error
        except OSError as error:
            raise _unwritable(str(folder.path), error) from error
        yield


@dataclass(frozen=True)
class Manifest:
    """The content of `queuewatch.json`."""

    checkpoint: Checkpoint
    formats: Mapping[str, int]
    written_by: str | None
    """The release that last wrote to it; None when unknown."""
    order: Order | None
    """By which its messages are spread over the shards; None when unknown: an earlier release did not record it."""


def claim(folder: Folder, uri: str, *, shards: int, sources: Sequence[str], order: Order) -> Checkpoint:
    """Open the checkpoint in `folder` (at `uri`), and write its manifest when it is new or of an earlier release.

    `sources` names the kinds of source in the order they are read. `order` is recorded: see `check_order`. Raises
    `CheckpointMismatch`, and `CheckpointUnwritable` when the manifest cannot be written, as on a full disk.
    """
    found = find(folder, uri, shards=shards, sources=sources)
    checkpoint = Checkpoint(uuid.uuid4().hex, shards, tuple(sources)) if found is None else found.checkpoint
    # From the first batch on, an earlier release must refuse the checkpoint, which it could not read, instead of failing in it.
    if found is None or dict(found.formats) != dict(FORMATS) or (found.written_by, found.order) != (own_version(), order):
        try:
            write_manifest(folder, checkpoint, order)
        except OSError as error:
            raise _unwritable(uri, error) from error
    return checkpoint


def _unwritable(where: str, error: OSError) -> CheckpointUnwritable:
    return CheckpointUnwritable(
        f"the checkpoint {where} cannot be written ({error.strerror})",
        "Fix its permissions, free space on its disk, or set spark.checkpoint_dir to a folder that this user may write",
    )


def find(folder: Folder, uri: str, *, shards: int, sources: Sequence[str]) -> Manifest | None:
    """Return the manifest of the checkpoint, None for a new one.

    Raises `CheckpointMismatch` when it was created with other shards or sources, has formats this release cannot read, or has
    batches but no manifest.
    """
    manifest = read_manifest(folder, uri)
    if manifest is None:
        if OFFSETS in folder.names():
            # With another number of shards, the events of known messages would go to shards that do not know them.
            raise CheckpointMismatch(
                f"the checkpoint {uri} has batches but no {NAME}, which says with how many shards and sources it was made",
                f"Restore it, or {START_AFRESH}",
            )
        return None
    found = manifest.checkpoint
    if found.shards != shards:
        remedy = START_AFRESH
        if local_folder(uri) is not None:
            command = f"queuewatch state reshard {shlex.quote(uri)} --shards {shards} --out NEW"
            remedy = f"convert it to a checkpoint with {shards} shards: {command}, then set spark.checkpoint_dir to it"
        raise CheckpointMismatch(
            f"the checkpoint {uri} was made with spark.shards: {found.shards}, not {shards}",
            f"Set spark.shards back to {found.shards}, or {remedy}",
        )
    if found.sources != tuple(sources):
        raise CheckpointMismatch(
            f"the checkpoint {uri} was made with the sources {', '.join(found.sources)}, not {', '.join(sources)}",
            f"Configure the same sources again, or {START_AFRESH}",
        )
    return manifest


def read_manifest(folder: Folder, uri: str) -> Manifest | None:
    """Read the manifest of a checkpoint, None where there is none.

    Raises `CheckpointMismatch` when it cannot be read, or names a format this release cannot read.
    """
    content = folder.read(NAME)
    if content is None:
        return None
    try:
        body = json.loads(content)
        checkpoint = Checkpoint(str(body["id"]), int(body["shards"]), tuple(body["sources"]))
        layout = int(body["layout"])
        formats = {str(name): int(version) for name, version in body.get("formats", BEFORE_THEY_WERE_LISTED).items()}
        written_by = body.get("written_by")
        order = tuple((str(entry["pattern"]), entry["ordered"]) for entry in body["queues"]) if "queues" in body else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(f"{uri}/{NAME} cannot be read ({error})", f"Restore it, or {START_AFRESH}") from error
    problems = unreadable(formats)
    if layout != LAYOUT:
        problems.insert(0, f"layout {layout} (this release writes {LAYOUT})")
    if problems:
        by = f"release {written_by}" if written_by else "another release"
        raise CheckpointMismatch(
            f"the checkpoint {uri} was written by {by} of queuewatch and holds {'; '.join(problems)}",
            f"Use the release that wrote it, or {START_AFRESH}",
        )
    return Manifest(checkpoint, formats, written_by, order)


def write_manifest(folder: Folder, checkpoint: Checkpoint, order: Order) -> None:
    """Write the manifest of a checkpoint, with the formats of this release."""
    body = {
        "layout": LAYOUT,
        "id": checkpoint.id,
        "shards": checkpoint.shards,
        "sources": list(checkpoint.sources),
        "queues": [{"pattern": pattern, "ordered": ordered} for pattern, ordered in order],
        "formats": dict(FORMATS),
        "written_by": own_version(),
    }
    folder.write(NAME, json.dumps(body, indent=2).encode())
