"""Ticks go on where the last logged batch left them, whatever the clock shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.tick_log import FOLDER, continue_ticks
from streaming.folder import LocalFolder

START_MS = 1_795_000_000_000
LAST_TICK = 600


def ticks_at(checkpoint: Path, now_ms: int) -> tuple[int, int]:
    """Return what `continue_ticks` returns, and the tick that Spark would count at `now_ms` afterwards."""
    behind_s = continue_ticks(LocalFolder(checkpoint / FOLDER), LocalFolder(checkpoint / "offsets"), now_ms)
    version, start_ms = (checkpoint / FOLDER / "0").read_text().splitlines()
    assert version == "v1"
    return behind_s, (now_ms - int(start_ms)) // 1000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint whose ninth and tenth batch are logged."""
    LocalFolder(tmp_path / FOLDER).write("0", f"v1\n{START_MS}".encode())
    for batch_id, tick in ((9, LAST_TICK - 1), (10, LAST_TICK)):
        LocalFolder(tmp_path / "offsets").write(str(batch_id), f'v1\n{{"batchTimestampMs": 1}}\n{tick}'.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("clock_s", "behind_s", "tick", "why"),
    [
        (LAST_TICK + 30, 0, LAST_TICK + 30, "an ordinary restart"),
        (LAST_TICK, 0, LAST_TICK, "in the second of the last tick"),
        (LAST_TICK - 1, 1, LAST_TICK + 1, "set back by a second"),
        (LAST_TICK - 86_400, 86_400, LAST_TICK + 1, "a day back: before the start of the checkpoint, too"),
    ],
)
def test_a_clock_behind_the_last_tick_moves_the_start(checkpoint: Path, clock_s: int, behind_s: int, tick: int, why: str) -> None:
    """Spark fails every batch while the clock shows less than the last tick."""
    assert ticks_at(checkpoint, START_MS + clock_s * 1000) == (behind_s, tick), why


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
    assert continue_ticks(LocalFolder(tmp_path / FOLDER), LocalFolder(tmp_path / "offsets"), START_MS) == 0
    assert list(tmp_path.iterdir()) == []
