"""The judge's memory by batch id: as durable as Spark's state and consistent with it."""

from __future__ import annotations

import re
from typing import Final

import structlog

from streaming.checkpoint.state_files import VERSIONS_KEPT, whole_of
from streaming.folder import Folder
from streaming.judge.memory.memory import JudgeMemory

FOLDER: Final = "judge"
"""Name of the folder in the checkpoint."""
SEED: Final = "seed.memory"
"""The initial memory of a checkpoint that was created from another one."""

_NAME = re.compile(r"(\d{12})\.memory")
_log = structlog.get_logger(__name__)


class MemoryStore:
    """The judge's memory after those of the last batches whose states are kept.

    A batch that runs again starts from the same memory as the first time: that of the largest id below its own. So it
    reports the same changes and loses none.
    """

    def __init__(self, folder: Folder, *, kept: int = VERSIONS_KEPT) -> None:
        self._folder = folder
        self._kept = kept
        self._ids = sorted(int(found[1]) for name in folder.names() if (found := _NAME.fullmatch(name)))
        self._latest: tuple[int, JudgeMemory] | None = None

    def before(self, batch_id: int) -> JudgeMemory:
        """Return the memory from which batch `batch_id` starts; an empty one for the first batch."""
        earlier = [known for known in self._ids if known < batch_id]
        if not earlier:
            if batch_id > 0:
                _log.warning("judge_memory_missing", batch_id=batch_id, effect="signals that fire are announced again")
            seed = self._folder.read(SEED)
            return JudgeMemory.empty() if seed is None else JudgeMemory.from_bytes(seed)
        if self._latest is not None and self._latest[0] == earlier[-1]:
            return self._latest[1]
        content = self._folder.read(memory_file(earlier[-1]))
        if content is None:
            raise FileNotFoundError(f"the judge's memory of batch {earlier[-1]} has been deleted from the checkpoint")
        return JudgeMemory.from_bytes(content)

    def latest(self) -> JudgeMemory:
        """Return the latest memory; an empty one before the first batch."""
        return self.before(self._ids[-1] + 1 if self._ids else 0)

    def save(self, batch_id: int, memory: JudgeMemory) -> None:
        """Store the memory after `batch_id`; delete those a rolled-back run left beyond it, and the oldest."""
        self._folder.write(memory_file(batch_id), memory.to_bytes())
        stale = [known for known in self._ids if known > batch_id]
        kept = whole_of(sorted({*self._ids, batch_id} - set(stale)), self._kept)
        for known in {*self._ids} - {*kept}:
            self._folder.delete(memory_file(known))
        self._ids = kept
        self._latest = (batch_id, memory)


def memory_file(batch_id: int) -> str:
    """Return the name of the file with the memory after a batch."""
    return f"{batch_id:012d}.memory"
