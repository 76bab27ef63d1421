"""The judge's memory by batch id: as durable as Spark's state, and in step with it."""

from __future__ import annotations

import re
from typing import Final

import structlog

from streaming.judge.memory import JudgeMemory
from streaming.spark.folder import Folder

KEPT: Final = 20
"""Memories kept; more than the batches Spark can go back."""

SEED: Final = "seed.memory"
"""What a checkpoint begins with that was made from another one."""

_NAME = re.compile(r"(\d{12})\.memory")
_log = structlog.get_logger(__name__)


class MemoryStore:
    """What the judge knew after each of the last batches.

    A batch that runs again starts from the memory it started from the first time: that of the largest id below its
    own. So it announces the same changes, and forgets none.
    """

    def __init__(self, folder: Folder, *, kept: int = KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._ids = sorted(int(found[1]) for name in folder.names() if (found := _NAME.fullmatch(name)))
        self._latest: tuple[int, JudgeMemory] | None = None

    def before(self, batch_id: int) -> JudgeMemory:
        """The memory that batch `batch_id` starts from; an empty one for the first batch."""
        earlier = [known for known in self._ids if known < batch_id]
        if not earlier:
            if batch_id > 0:
                _log.warning("judge_memory_missing", batch_id=batch_id, effect="signals that fire are announced again")
            seed = self._folder.read(SEED)
            return JudgeMemory.empty() if seed is None else JudgeMemory.from_bytes(seed)
        if self._latest is not None and self._latest[0] == earlier[-1]:
            return self._latest[1]
        content = self._folder.read(_name(earlier[-1]))
        if content is None:
            raise FileNotFoundError(f"the judge's memory of batch {earlier[-1]} has been deleted from the checkpoint")
        return JudgeMemory.from_bytes(content)

    def save(self, batch_id: int, memory: JudgeMemory) -> None:
        """Keep the memory after `batch_id`; what a run that was undone left beyond it goes, and the oldest."""
        self._folder.write(_name(batch_id), memory.to_bytes())
        stale = [known for known in self._ids if known > batch_id]
        kept = sorted({*self._ids, batch_id} - set(stale))
        for known in [*stale, *kept[: -self._kept]]:
            self._folder.delete(_name(known))
        self._ids = kept[-self._kept :]
        self._latest = (batch_id, memory)


def _name(batch_id: int) -> str:
    return f"{batch_id:012d}.memory"
