"""The start of Spark's ticks in a checkpoint, from which it counts their seconds: the file `sources/0/0`.

Spark keeps it for the life of a checkpoint, and a batch has the ticks up to the second that the clock shows then. When the clock
was set back, that second lies before those of earlier batches: Spark's source of ticks then fails every batch until the clock has
caught up, be it a year. When it was set forward by a year, the batch has a tick for each of 31 million seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streaming.checkpoint.offset_log import COMMITS, batch_ids, last_tick, with_last_tick
from streaming.checkpoint.offset_log import FOLDER as OFFSETS
from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.folder import Folder

FOLDER: Final = "sources/0"
"""Name of the folder in the checkpoint: the ticks are the first source."""
MOST_TICKS: Final = 86_400
"""The most ticks of one batch: those of an outage of a day."""
_START: Final = "0"
_VERSION: Final = "v1"


class TooManyTicks(RuntimeError):
    """The clock was set forward while the query ran: `continue_ticks` corrects it before the next one."""


def check_ticks(offsets: Folder, batch_id: int) -> None:
    """Raise `TooManyTicks` when Spark has planned more than `MOST_TICKS` for a batch that is about to run."""
    before, tick = _tick(offsets, batch_id - 1), _tick(offsets, batch_id)
    if before is not None and tick is not None and tick - before > MOST_TICKS:
        raise TooManyTicks(f"the clock was set forward by {tick - before} s: the ticks are counted anew")


def continue_ticks(folder_of: Callable[[str], Folder], now_ms: int) -> int:
    """Let the ticks continue after those of the last logged batch, if the clock (`now_ms`) is before them or far beyond.

    Returns by how many seconds it is before (negative) or beyond them, 0 if nothing was changed. No query may run meanwhile.
    """
    offsets, ticks = folder_of(OFFSETS), folder_of(FOLDER)
    logged = max(batch_ids(offsets), default=-1)
    tick = _tick(offsets, logged)
    if tick is None:
        return 0
    before = _tick(offsets, logged - 1)
    if before is not None and tick - before > MOST_TICKS and logged not in batch_ids(folder_of(COMMITS)):
        tick = before + 1
        rewrite_spark_file(offsets, str(logged), with_last_tick(offsets.read(str(logged)) or b"", tick))
    start_ms = _start_ms(ticks.read(_START))
    beyond_s = (now_ms - start_ms) // 1000 - tick if start_ms is not None else 0
    if start_ms is not None and 0 <= beyond_s <= MOST_TICKS:
        return 0
    rewrite_spark_file(ticks, _START, f"{_VERSION}\n{now_ms - (tick + 1) * 1000}".encode())
    return beyond_s


def _tick(offsets: Folder, batch_id: int) -> int | None:
    content = offsets.read(str(batch_id))
    try:
        return last_tick(content) if content is not None else None
    except (ValueError, IndexError):
        # A damaged log is recovery's business.
        return None


def _start_ms(content: bytes | None) -> int | None:
    """Return when the ticks began, in epoch milliseconds; None where that is not known, as in an incomplete copy."""
    try:
        version, start = (content or b"").decode().splitlines()
        return int(start) if version == _VERSION else None
    except ValueError:
        return None
