"""Ticks go on where the last logged batch left them, whatever the clock shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.offset_log import last_tick
from streaming.checkpoint.tick_log import FOLDER, MOST_TICKS, TooManyTicks, check_ticks, continue_ticks
from streaming.folder import LocalFolder

START_MS = 1_795_000_000_000
LAST_TICK = 600


def ticks_at(checkpoint: Path, now_ms: int) -> tuple[int, int]:
    """Return what `continue_ticks` returns, and the tick that Spark would count at `now_ms` afterwards."""
    beyond_s = continue_ticks(lambda name: LocalFolder(checkpoint / name), now_ms)
    version, start_ms = (checkpoint / FOLDER / "0").read_text().splitlines()
    assert version == "v1"
    return beyond_s, (now_ms - int(start_ms)) // 1000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint whose ninth and tenth batch are logged."""
    LocalFolder(tmp_path / FOLDER).write("0", f"v1\n{START_MS}".encode())
    for batch_id, tick in ((9, LAST_TICK - 1), (10, LAST_TICK)):
        LocalFolder(tmp_path / "offsets").write(str(batch_id), f'v1\n{{"batchTimestampMs": 1}}\n{tick}'.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("clock_s", "beyond_s", "tick", "why"),
    [
        (LAST_TICK + 30, 0, LAST_TICK + 30, "an ordinary restart"),
        (LAST_TICK, 0, LAST_TICK, "in the second of the last tick"),
        (LAST_TICK + MOST_TICKS, 0, LAST_TICK + MOST_TICKS, "after an outage of a day"),
        (LAST_TICK + MOST_TICKS + 1, MOST_TICKS + 1, LAST_TICK + 1, "a longer outage, or set forward: a tick will do"),
        (LAST_TICK - 1, -1, LAST_TICK + 1, "set back by a second"),
        (LAST_TICK - 86_400, -86_400, LAST_TICK + 1, "a day back: before the start of the checkpoint, too"),
    ],
)
def test_a_clock_far_from_the_last_tick_moves_the_start(
    checkpoint: Path, clock_s: int, beyond_s: int, tick: int, why: str
) -> None:
    """Spark fails every batch while the clock shows less than the last tick, and makes a tick for each second beyond it."""
    assert ticks_at(checkpoint, START_MS + clock_s * 1000) == (beyond_s, tick), why


@pytest.mark.parametrize("content", [None, b"", b"v1\n", b"v2\n5", b"\xff"])
def test_a_start_that_is_lost_is_made_up(checkpoint: Path, content: bytes | None) -> None:
    """Spark would begin at tick zero in a checkpoint that was copied without this file."""
    if content is None:
        (checkpoint / FOLDER / "0").unlink()
    else:
        (checkpoint / FOLDER / "0").write_bytes(content)
    assert ticks_at(checkpoint, START_MS) == (0, LAST_TICK + 1)


def test_a_new_checkpoint_is_left_to_spark(tmp_path: Path) -> None:
    """Nothing is written where no batch is logged."""
    assert continue_ticks(lambda name: LocalFolder(tmp_path / name), START_MS) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_with_a_tick_for_each_second_of_a_year_is_not_run(checkpoint: Path, committed: bool) -> None:
    """Spark has logged it before it is refused, so the log is corrected; that of a committed batch is left."""
    offsets = LocalFolder(checkpoint / "offsets")
    check_ticks(offsets, 10)
    year_s = 365 * 86_400
    offsets.write("11", f'v1\n{{"batchTimestampMs": 1}}\n{LAST_TICK + year_s}\n{{"t":{{"0":5}}}}'.encode())
    with pytest.raises(TooManyTicks, match=f"set forward by {year_s} s"):
        check_ticks(offsets, 11)
    if committed:
        LocalFolder(checkpoint / "commits").write("11", b"v1")
    last = LAST_TICK + (year_s if committed else 1)
    assert ticks_at(checkpoint, START_MS + (LAST_TICK + year_s) * 1000) == ((0, last) if committed else (year_s - 1, last + 1))
    logged = offsets.read("11")
    assert logged is not None
    assert last_tick(logged) == last
    assert logged.endswith(b'\n{"t":{"0":5}}')
