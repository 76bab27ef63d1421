"""The ledger of the spool folder in the checkpoint: a plan per batch, and at intervals an index of everything read."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streaming.folder import Folder
from streaming.spool.pieces import Piece

FOLDER: Final = "spool"
"""Name of the folder in the checkpoint."""
SPOOL_VERSION: Final = 1
"""The format version of plans and indexes."""
INDEX_EVERY: Final = 50
"""The number of plans after which an index of everything read is written, so that older plans can be deleted."""

SEED: Final = "seed.index"
"""The initial index of a checkpoint that was created from another one."""

_NAME: Final = re.compile(r"(\d{12})\.(plan|index)")


class SpoolDamaged(ValueError):
    """A plan or an index is missing or cannot be read; the message names it."""


class Taken(NamedTuple):
    """How much of a file was planned."""

    end: int
    """The number of its first bytes that were planned."""
    batch_id: int
    """The batch that reads the last of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The pieces that one batch reads."""

    batch_id: int
    pieces: tuple[Piece, ...]


class SpoolLedger:
    """The plans of the last batches. A batch that runs again finds its earlier plan.

    Files that are no longer in the folder are forgotten with the next index, so the ledger is bounded by the folder's content.
    """

    def __init__(self, folder: Folder, *, kept: int) -> None:
        self._folder = folder
        self._kept = kept
        names = [found for name in folder.names() if (found := _NAME.fullmatch(name))]
        self._plans = sorted(int(found[1]) for found in names if found[2] == "plan")
        self._indexes = sorted(int(found[1]) for found in names if found[2] == "index")

    def plan_of(self, batch_id: int) -> Plan | None:
        """Return the existing plan of a batch, or None. Raises `SpoolDamaged`."""
        return self._plan(batch_id) if batch_id in self._plans else None

    def last(self, batch_id: int) -> int:
        """Return the latest batch up to `batch_id` that read anything; -1 for none."""
        return max((known for known in (*self._plans, *self._indexes) if known <= batch_id), default=-1)

    def before(self, batch_id: int) -> dict[str, Taken]:
        """Return what the batches before `batch_id` have read, by file name. Raises `SpoolDamaged`."""
        base = max((known for known in self._indexes if known < batch_id), default=None)
        taken = self._files(SEED) if base is None else self._files(_name(base, "index"))
        for known in self._plans:
            if known < batch_id and (base is None or known > base):
                take(taken, self._plan(known))
        return taken

    def save(self, plan: Plan) -> None:
        """Store the plan of a batch; delete those a rolled-back run left beyond it. Raises `OSError`."""
        pieces = [piece.to_json() for piece in plan.pieces]
        body = {"version": SPOOL_VERSION, "previous": self.last(plan.batch_id - 1), "pieces": pieces}
        self._write(_name(plan.batch_id, "plan"), body)
        for kind, known in (("plan", self._plans), ("index", self._indexes)):
            for undone in [batch_id for batch_id in known if batch_id > plan.batch_id]:
                self._folder.delete(_name(undone, kind))
                known.remove(undone)
        self._plans = sorted({*self._plans, plan.batch_id})

    def index(self, batch_id: int, taken: Mapping[str, Taken], present: Container[str]) -> bool:
        """Write an index of what was read up to and including batch `batch_id`, if due; only of files that are `present`."""
        latest = self._indexes[-1] if self._indexes else -1
        if sum(known > latest for known in self._plans) < INDEX_EVERY:
            return False
        self._write(_name(batch_id, "index"), _index({name: one for name, one in taken.items() if name in present}))
        self._indexes = sorted({*self._indexes, batch_id})
        base = max((known for known in self._indexes if known <= batch_id - self._kept), default=-1)
        for kind, ids in (("plan", self._plans), ("index", self._indexes)):
            for old in [known for known in ids if known < base or (known == base and kind == "plan")]:
                self._folder.delete(_name(old, kind))
                ids.remove(old)
        return True

    def problems(self, last: int) -> Iterator[str]:
        """Yield the missing or damaged files that plan `last` depends on; none when the next batch can continue from it."""
        try:
            while last >= 0 and last not in self._indexes:
                last = int(self._read(_name(last, "plan"))["previous"])
            self._files(_name(last, "index") if last >= 0 else SEED)
        except (SpoolDamaged, KeyError, ValueError, TypeError) as error:
            yield str(error)

    def _plan(self, batch_id: int) -> Plan:
        name = _name(batch_id, "plan")
        body = self._read(name)
        try:
            return Plan(batch_id, tuple(map(Piece.of, body["pieces"])))
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDamaged(f"{FOLDER}/{name} cannot be read: {error!r}") from error

    def seed(self, taken: Mapping[str, Taken]) -> None:
        """Let a new checkpoint start with files that another one has read."""
        self._write(SEED, _index(taken))

    def _files(self, name: str) -> dict[str, Taken]:
        if name == SEED and self._folder.read(SEED) is None:
            return {}
        body = self._read(name)
        try:
            return {str(file): Taken(int(end), int(by)) for file, (end, by) in body["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpoolDamaged(f"{FOLDER}/{name} cannot be read: {error!r}") from error

    def _read(self, name: str) -> dict[str, Any]:
        content = self._folder.read(name)
        if content is None:
            raise SpoolDamaged(f"{FOLDER}/{name} is gone")
        try:
            body = json.loads(content)
            if body["version"] != SPOOL_VERSION:
                raise ValueError(f"version {body['version']}, this release reads {SPOOL_VERSION}")
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDamaged(f"{FOLDER}/{name} cannot be read: {error}") from error
        return dict(body)

    def _write(self, name: str, body: Mapping[str, Any]) -> None:
        self._folder.write(name, json.dumps(body, separators=(",", ":")).encode())


def take(taken: dict[str, Taken], plan: Plan) -> None:
    """Add the pieces of a plan."""
    for piece in plan.pieces:
        taken[piece.name] = Taken(piece.end, plan.batch_id)


def _index(taken: Mapping[str, Taken]) -> dict[str, Any]:
    return {"version": SPOOL_VERSION, "files": {name: list(one) for name, one in taken.items()}}


def missing_of(pieces: Sequence[Piece], sizes: Mapping[str, int]) -> set[str]:
    """Return the files of some pieces that are missing, or shorter than before."""
    return {piece.name for piece in pieces if sizes.get(piece.name, -1) < piece.end}


def _name(batch_id: int, kind: str) -> str:
    return f"{batch_id:012d}.{kind}"
