"""The start of Spark's ticks in a checkpoint, from which it counts their seconds: the file `sources/0/0`.

Spark keeps it for the life of a checkpoint, and a batch has the ticks up to the second that the clock shows then. When the clock
was set back, that second lies before those of earlier batches: Spark's source of ticks then fails every batch until the clock has
caught up, be it a year.
"""

from __future__ import annotations

from typing import Final

from streaming.checkpoint.offset_log import last_tick
from streaming.folder import Folder

FOLDER: Final = "sources/0"
"""Name of the folder in the checkpoint: the ticks are the first source."""
_START: Final = "0"
_VERSION: Final = "v1"


def continue_ticks(ticks: Folder, offsets: Folder, now_ms: int) -> int:
    """Let the ticks continue after those of the last logged batch, if the clock (`now_ms`) lies before them.

    Returns by how many seconds it does, 0 if it does not. Must be called while no query runs.
    """
    logged = max((int(name) for name in offsets.names() if name.isdigit()), default=None)
    content = offsets.read(str(logged))
    if content is None:
        return 0
    try:
        tick = last_tick(content)
    except (ValueError, IndexError):
        # A damaged log is recovery's business.
        return 0
    start_ms = _start_ms(ticks.read(_START))
    if start_ms is not None and now_ms >= start_ms + tick * 1000:
        return 0
    ticks.write(_START, f"{_VERSION}\n{now_ms - (tick + 1) * 1000}".encode())
    # On a local disk Hadoop keeps a checksum beside the file, which is that of the old content.
    ticks.delete(f".{_START}.crc")
    return (start_ms - now_ms) // 1000 + tick if start_ms is not None else 0


def _start_ms(content: bytes | None) -> int | None:
    """Return when the ticks began, in epoch milliseconds; None where that is not known, as in an incomplete copy."""
    try:
        version, start = (content or b"").decode().splitlines()
        return int(start) if version == _VERSION else None
    except ValueError:
        return None
