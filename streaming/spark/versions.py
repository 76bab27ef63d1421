"""The ledger of versions: which files hold the states after each of the last batches.

Spark's own store has the same in a form only Spark reads. The ledger is what a checkpoint is verified by before Spark starts,
what is read offline (`queuewatch state`), and where totals are kept that belong to a batch and to no shard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.spark.folder import Folder
from streaming.spark.state_files import VERSIONS_KEPT, StateFile

FOLDER: Final = "versions"
LEDGER_VERSION: Final = 1
SPOOL: Final = "spool"

_NAME: Final = re.compile(r"(\d{12})\.json")


class LedgerDamaged(ValueError):
    """An entry cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class ShardVersion:
    """The state of one shard after a batch. Sizes in bytes."""

    files: tuple[StateFile, ...]
    """The head first; none where Spark keeps the state itself."""
    size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """What a batch left behind."""

    batch_id: int
    now_ms: int
    """When the batch was judged; epoch milliseconds."""
    shards: Mapping[int, ShardVersion]
    """By the shard's key. A shard the batch did not touch has the files it had."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Lost so far: records by topic and partition, and files of the spool folder under `SPOOL`."""
    spool: int = -1
    """The latest batch that read something of the spool folder."""


class VersionLedger:
    """The entries of the last batches. Written after the states and before Spark commits the batch."""

    def __init__(self, folder: Folder, *, kept: int = VERSIONS_KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._ids = sorted(int(match[1]) for name in folder.names() if (match := _NAME.fullmatch(name)))

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches there are entries of, ascending."""
        return tuple(self._ids)

    def before(self, batch_id: int) -> Version | None:
        """The entry batch `batch_id` goes on from: the latest before its own; None for the first. Raises `LedgerDamaged`."""
        earlier = [known for known in self._ids if known < batch_id]
        return self.read(earlier[-1]) if earlier else None

    def read(self, batch_id: int) -> Version:
        """One entry. Raises `LedgerDamaged`."""
        content = self._folder.read(_name(batch_id))
        if content is None:
            raise LedgerDamaged(f"{FOLDER}/{_name(batch_id)} is gone")
        try:
            return _version(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerDamaged(f"{FOLDER}/{_name(batch_id)} cannot be read: {error!r}") from error

    def save(self, version: Version) -> None:
        """Keep an entry; what a run that was undone left beyond it goes, and the oldest."""
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
    return Version(int(body["batch_id"]), int(body["now_ms"]), shards, lost, int(body.get("spool", -1)))
