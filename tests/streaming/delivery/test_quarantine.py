"""Invalid events are kept once, even if a batch runs twice, and within a size limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sinks.append_once import AppendOnceFile
from streaming.core.events.packet import Quarantined
from streaming.delivery.quarantine import InvalidEventLog, quarantine_records


def bad(*raws: bytes) -> list[Quarantined]:
    """Return invalid events."""
    return [Quarantined("not_json", "no JSON", raw, "topic/0@7", 3) for raw in raws]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def raws(path: Path) -> list[str]:
    """Return the events in the file."""
    return [line["raw"] for line in lines(path)]


class QuarantineFile:
    """The file as the service opens it."""

    def __init__(self, path: Path, stream: str, *, max_bytes: int) -> None:
        self._stream = stream
        self._file = AppendOnceFile(path, stream, max_bytes=max_bytes // 2, keep_files=1, trims=True)

    def keep(self, invalid: list[Quarantined], batch_id: int) -> None:
        """Keep the invalid events of one batch."""
        self._file.append(quarantine_records(invalid, batch_id, self._stream), batch_id)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path in a folder that does not exist yet."""
    return tmp_path / "kept" / "quarantine.ndjson"


def test_a_line_has_the_event_its_reason_and_its_origin(path: Path) -> None:
    """Text is stored as text, other bytes as base64."""
    QuarantineFile(path, "here", max_bytes=10_000).keep(bad(b'{"a', b"\xff\x00"), 4)
    text, binary = lines(path)
    assert text == {
        "batch_id": 4,
        "stream": "here",
        "reason": "not_json",
        "detail": "no JSON",
        "origin": "topic/0@7",
        "line": 3,
        "raw": '{"a',
    }
    assert binary["raw_base64"] == "/wA="


@pytest.mark.parametrize("restarted", [False, True], ids=["in the same process", "after a restart"])
@pytest.mark.parametrize("again", [[b"b", b"c"], [b"x"], []], ids=["the same", "other", "nothing"])
def test_a_batch_that_runs_again_leaves_one_copy(path: Path, restarted: bool, again: list[bytes]) -> None:
    """The copy is from its last run."""
    quarantine = QuarantineFile(path, "here", max_bytes=10_000)
    quarantine.keep(bad(b"a"), 1)
    quarantine.keep(bad(b"b", b"c"), 2)
    if restarted:
        quarantine = QuarantineFile(path, "here", max_bytes=10_000)
    quarantine.keep(bad(*again), 2)
    quarantine.keep(bad(b"d"), 3)
    assert raws(path) == ["a", *[raw.decode() for raw in again], "d"]


def test_another_checkpoint_s_events_are_kept(path: Path) -> None:
    """Batch 0 of the new checkpoint is not a batch of the old one."""
    QuarantineFile(path, "old", max_bytes=10_000).keep(bad(b"a"), 5)
    QuarantineFile(path, "new", max_bytes=10_000).keep(bad(b"b"), 0)
    assert raws(path) == ["a", "b"]


def test_a_line_truncated_by_a_crash_is_removed(path: Path) -> None:
    """Its batch runs again and writes it again."""
    QuarantineFile(path, "here", max_bytes=10_000).keep(bad(b"a"), 1)
    with path.open("a") as file:
        file.write('{"batch_id": 2, "stre')
    QuarantineFile(path, "here", max_bytes=10_000).keep(bad(b"b"), 2)
    assert raws(path) == ["a", "b"]


def test_the_newest_events_are_kept_within_the_size_limit(path: Path) -> None:
    """The limit covers the file and its predecessor."""
    quarantine = QuarantineFile(path, "here", max_bytes=4_000)
    for batch_id in range(100):
        quarantine.keep(bad(b"%03d" % batch_id), batch_id)
    before = path.with_name(path.name + ".1")
    assert path.stat().st_size + before.stat().st_size <= 4_000
    kept = raws(before) + raws(path)
    assert kept == [f"{n:03d}" for n in range(100 - len(kept), 100)]
    assert len(kept) > 10


def test_a_batch_larger_than_the_size_limit_is_truncated_at_a_line(path: Path) -> None:
    """Every line that is kept is readable."""
    QuarantineFile(path, "here", max_bytes=2_000).keep(bad(*[b"x"] * 1000), 1)
    assert 1 <= len(lines(path)) < 20
    assert path.stat().st_size <= 1_000


def test_records_of_a_batch_that_runs_again_have_the_same_keys() -> None:
    """A topic cannot be truncated, but a reader can recognise duplicates by their keys."""
    first, again = (quarantine_records(bad(b"a", b"b"), 2, "here") for _ in range(2))
    assert first == again
    assert [record.key for record in first] == ["here/2/0", "here/2/1"]


def test_the_log_names_an_invalid_event_a_minute_for_each_reason() -> None:
    """Without a quarantine nothing else says which event it was. A name in it cannot write to the reader's terminal."""
    seconds = iter([0.0, 1.0, 30.0, 62.0])
    log = InvalidEventLog(lambda: next(seconds))
    first, second = bad(b"{", b"[")
    hostile = second._replace(reason="reused_id", detail="message 'null' of queue \x1b[2Jorders", origin="", line=None)
    with capture_logs() as said:
        for batch_id, invalid in enumerate(([], [first, second, hostile], [second, hostile], [second])):
            log.say(invalid, batch_id)
    assert [(entry["event"], entry["reason"], entry["batch_id"]) for entry in said] == [
        ("invalid_event", "not_json", 1),
        ("invalid_event", "reused_id", 1),
        ("invalid_event", "not_json", 3),
    ]
    assert (said[0]["detail"], said[0]["origin"], said[0]["line"]) == ("no JSON", "topic/0@7", 3)
    assert said[1]["detail"].startswith("message 'null' of queue ")
    assert "\x1b" not in said[1]["detail"]
    assert "line" not in said[1]
