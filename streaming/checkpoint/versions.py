"""The ledger of versions: which files hold the states after each of the last batches.

Spark's own store holds the same in a format only Spark reads. The ledger is used to verify a checkpoint before Spark starts and
to read it offline (`queuewatch state`), and it keeps totals that belong to a batch and not to a shard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.checkpoint.state_files import VERSIONS_KEPT, StateFile, whole_of
from streaming.folder import Folder

FOLDER: Final = "versions"
LEDGER_VERSION: Final = 1
LOST_FILES: Final = {"gone": "spool", "refused": "spool_refused"}
"""Reason why a spool file was not read -> the key of the count in `Version.lost`; keys of Kafka have a slash."""

_NAME: Final = re.compile(r"(\d{12})\.json")


class LedgerDamaged(ValueError):
    """An entry of the ledger cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class ShardVersion:
    """The state of one shard after a batch. Sizes in bytes."""

    files: tuple[StateFile, ...]
    """The head first; empty where Spark stores the state itself."""
    size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """The result of a batch."""

    batch_id: int
    now_ms: int
    """When the batch was judged, in epoch milliseconds."""
    shards: Mapping[int, ShardVersion]
    """Versions by the shard's key. A shard the batch did not touch keeps its files."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Lost so far: records by topic and partition, and files of the spool folder by `LOST_FILES`."""
    spool: int = -1
    """The latest batch that read from the spool folder."""


class VersionLedger:
    """The entries of the last batches. Written after the states and before Spark commits the batch."""

    def __init__(self, folder: Folder, *, kept: int = VERSIONS_KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._ids = sorted(int(match[1]) for name in folder.names() if (match := _NAME.fullmatch(name)))

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batches that have entries, ascending."""
        return tuple(self._ids)

    def before(self, batch_id: int) -> Version | None:
        """Return the latest entry before batch `batch_id`, None for the first batch. Raises `LedgerDamaged`."""
        earlier = [known for known in self._ids if known < batch_id]
        return self.read(earlier[-1]) if earlier else None

    def read(self, batch_id: int) -> Version:
        """Read one entry. Raises `LedgerDamaged`."""
        content = self._folder.read(_name(batch_id))
        if content is None:
            raise LedgerDamaged(f"{FOLDER}/{_name(batch_id)} is gone")
        try:
            return _version(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerDamaged(f"{FOLDER}/{_name(batch_id)} cannot be read: {error!r}") from error

    def files(self, committed: int) -> frozenset[str] | None:
        """Return the names of the state files a checkpoint can continue from, where `committed` is its last batch (-1: none).

        None where that is not known: that batch is of a release without a ledger, or an entry is damaged.
        """
        if not self._ids or (committed >= 0 and committed not in self._ids):
            return None
        try:
            entries = [self.read(batch_id) for batch_id in whole_of(self._ids, self._kept)]
        except LedgerDamaged:
            return None
        return frozenset(file.name for entry in entries for shard in entry.shards.values() for file in shard.files)

    def save(self, version: Version) -> None:
        """Store an entry; delete those a rolled-back run left beyond it, and the oldest."""
        self._folder.write(_name(version.batch_id), json.dumps(_body(version), separators=(",", ":")).encode())
        stale = [known for known in self._ids if known > version.batch_id]
        kept = sorted({*self._ids, version.batch_id} - set(stale))
        for known in [*stale, *kept[: -self._kept]]:
            self._folder.delete(_name(known))
        self._ids = kept[-self._kept :]


def _name(batch_id: int) -> str:
    return f"{batch_id:012d}.json"


def _body(version: Version) -> dict[str, Any]:
    shards = {key: [list(map(str, shard.files)), shard.size, shard.rows] for key, shard in version.shards.items()}
    return {
        "version": LEDGER_VERSION,
        "batch_id": version.batch_id,
        "now_ms": version.now_ms,
        "shards": shards,
        "lost": dict(version.lost),
        "spool": version.spool,
    }


def _version(body: Mapping[str, Any]) -> Version:
    if body["version"] != LEDGER_VERSION:
        raise ValueError(f"version {body['version']}, this release reads {LEDGER_VERSION}")
    shards = {
        int(key): ShardVersion(tuple(map(StateFile.of, files)), int(size), int(rows))
        for key, (files, size, rows) in body["shards"].items()
    }
    lost = {str(name): int(n) for name, n in body["lost"].items()}
    return Version(
        batch_id=int(body["batch_id"]), now_ms=int(body["now_ms"]), shards=shards, lost=lost, spool=int(body.get("spool", -1))
    )
