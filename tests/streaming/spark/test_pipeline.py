"""The whole query on real Spark: time, restarts, batches that run twice, unreadable records."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.clock import wall_ms
from sources.wire.encode import encode_arrow
from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.versions import FOLDER, VersionLedger
from streaming.config.source import Sources, SpoolSource
from streaming.folder import LocalFolder
from streaming.judge.snapshot import QueueView, Snapshot
from streaming.spool import cut
from streaming.spool.ledger import Plan
from tests.streaming.spark.live import SHARDS, Live
from tests.streaming.spark.packets import event, ndjson


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Live:
    """A pipeline for this test alone."""
    return Live(spark, tmp_path)


def orders(snapshot: Snapshot) -> QueueView | None:
    """Return the queue that the tests send to."""
    return next((queue for queue in snapshot.queues if queue.queue == "orders"), None)


def sent_total(snapshot: Snapshot) -> int:
    """Return the number of messages sent to it so far."""
    queue = orders(snapshot)
    return queue.totals["sent"] if queue else 0


def messages(prefix: str, count: int) -> list[dict[str, object]]:
    """Return `count` messages sent now."""
    now = wall_ms()
    return [event("sent", f"{prefix}-{n}", now, sent_at=now) for n in range(count)]


def telemetry_of_an_outage(then: int, now: int) -> tuple[bytes, bytes]:
    """Return two records; with the first alone, two messages have waited for consumers since `then` (epoch milliseconds)."""
    first = [event("sent", f"m{n}", then, sent_at=then) for n in range(3)]
    first.append(event("deleted", "m0", then + 1, consumer="w"))
    return ndjson(*first), ndjson(*[event("deleted", f"m{n}", now - 1_000, consumer="w") for n in (1, 2)])


def test_an_empty_start_publishes_and_time_advances(live: Live) -> None:
    """Every shard reports in the first published batch, although no event has arrived."""
    with live.running() as query:
        first = live.wait(lambda _: True, query)
        live.wait(lambda snapshot: snapshot.at_ms > first.at_ms, query)
    assert first.queues == ()
    assert sum(first.events_total.values()) == 0
    reported = next(rows for _, rows in live.batches if rows)
    assert sorted(shard for shard, _, _ in reported) == sorted(shard_keys(SHARDS))


def test_a_checkpoint_may_be_given_as_an_escaped_uri(live: Live, tmp_path: Path) -> None:
    """Spark, which does not unescape it, and the service write to the same folder."""
    live.checkpoint = tmp_path / "check point #1"
    live.checkpoint_uri = live.checkpoint.as_uri()
    with live.running() as query:
        live.wait(lambda _: True, query)
    assert query.exception() is None
    assert (live.checkpoint / "commits" / "0").exists()


def test_a_stop_between_two_batches_is_not_a_failure(live: Live) -> None:
    """Every batch that started is committed, even when batches follow each other without a pause."""
    live.send(*messages("a", 2))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 2, query)
    assert query.exception() is None
    commits = live.checkpoint / "commits"
    assert max(int(path.name) for path in commits.iterdir() if path.name.isdigit()) == live.batches[-1][0]


def test_telemetry_of_an_outage_of_the_job_is_judged_at_its_own_time(live: Live) -> None:
    """In the first batch nothing seems to have been processed for 20 minutes; that it was is in the second."""
    now = wall_ms()
    then = now - 1_200_000
    first, second = telemetry_of_an_outage(then, now)
    live.sources = Sources(spool=SpoolSource(folder=str(live.spool), max_bytes_per_trigger=1))  # each file is a batch
    live.put(first)
    time.sleep(0.05)  # files are read in the order of their times
    live.put(second)
    with live.running() as query:
        live.wait(lambda s: (q := orders(s)) is not None and q.visible == 0, query)
        live.wait(lambda s: s.at_ms > now, query)
    behind = next(s for s in live.snapshots if orders(s))
    assert behind.at_ms == then + 1
    assert 1_200_000 <= behind.behind_ms < 1_400_000
    assert live.snapshots[-1].behind_ms == 0
    assert live.changes == []


def test_a_visibility_timeout_expires_without_an_event(live: Live) -> None:
    """Ticks advance the time."""
    now = wall_ms()
    live.send(event("received", "a", now, sent_at=now, receive_count=1, invisible_until=now + 6_000))
    with live.running() as query:
        held = live.wait(lambda s: (q := orders(s)) is not None and q.in_flight == 1, query)
        free = live.wait(lambda s: (q := orders(s)) is not None and q.visible == 1, query)
    assert held.at_ms < now + 6_000 <= free.at_ms


def test_every_form_of_record_is_read_and_bad_ones_are_quarantined(live: Live) -> None:
    """The input is NDJSON with one bad line, a JSON array, an Arrow stream, and a file of random bytes."""
    now = wall_ms()
    first, second, third = messages("a", 1), messages("b", 2), messages("c", 3)
    live.put(ndjson(*first) + b'{"v": 1, "type": "sent", "at"\n')
    live.put(b"[" + b",".join(ndjson(m).strip() for m in second) + b"]", "json")
    live.put(encode_arrow(third), "arrow")
    noise = live.put(bytes(range(256)) * 10)
    with live.running() as query:
        snapshot = live.wait(lambda s: sum(s.events_total.values()) >= 8, query)
        live.send(event("deleted", "a-0", now + 1))
        live.wait(lambda s: (q := orders(s)) is not None and q.totals["deleted"] == 1, query)
    assert sent_total(snapshot) == 6
    assert snapshot.events_total["invalid"] == 2
    assert sum(snapshot.invalid_total.values()) == 2
    assert len(live.quarantined) == 2
    assert any(noise.name in bad.origin for bad in live.quarantined)


def test_a_file_is_read_once_and_only_under_its_final_name(live: Live) -> None:
    """A file that is still being written under a temporary name is ignored."""
    part = live.spool / ".half.ndjson.part"
    part.write_bytes(ndjson(*messages("half", 1))[:20])
    (live.spool / "notes.txt").write_text("not telemetry")
    live.send(*messages("a", 2))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 2, query)
        part.write_bytes(ndjson(*messages("half", 1)))
        part.rename(live.spool / "half.ndjson")
        last = live.wait(lambda s: sent_total(s) == 3, query)
    assert last.events_total.get("invalid", 0) == 0


def test_a_file_with_an_old_time_is_read_too(live: Live) -> None:
    """It was moved in from elsewhere; Spark by default silently ignores files a week older than the newest."""
    live.send(*messages("new", 1))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 1, query)
        old = live.spool / ".old"
        old.write_bytes(ndjson(*messages("old", 1)))
        os.utime(old, (1_500_000_000, 1_500_000_000))
        old.rename(live.spool / "old.ndjson")
        live.wait(lambda s: sent_total(s) == 2, query)


def test_a_file_deleted_before_it_is_read_is_counted_and_is_not_a_failure(live: Live) -> None:
    """Someone deleted it between planning and reading; the batch and the query continue."""

    def tidy_up(plan: Plan) -> None:
        for piece in plan.pieces:
            if piece.name == "gone.ndjson":
                (live.spool / piece.name).unlink()

    live.planned = tidy_up
    live.send(*messages("a", 2))
    (live.spool / "gone.ndjson").write_bytes(ndjson(*messages("gone", 3)))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 2, query)
        live.send(*messages("b", 2))
        live.wait(lambda s: sent_total(s) == 4, query)
        live.wait_batch()
    ledger = VersionLedger(LocalFolder(live.checkpoint / FOLDER))
    assert ledger.read(ledger.batches[-1]).lost["spool"] == 1


def test_a_file_larger_than_a_batch_is_read_in_pieces(live: Live) -> None:
    """It is read over several batches and a restart, and every event counts once."""
    live.sources = Sources(spool=SpoolSource(folder=str(live.spool), max_bytes_per_trigger=9 << 20))
    line = json.dumps({**messages("x", 1)[0], "message_id": "%09d", "reason": "x" * 900}).encode() + b"\n"
    count = (40 << 20) // len(line)
    live.put(b"".join(line % n for n in range(count)))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) > 0, query)
    with live.running() as query:
        last = live.wait(lambda s: sent_total(s) == count, query)
    assert last.events_total == {"accepted": count, "duplicate": 0, "late": 0, "ahead": 0, "invalid": 0}
    assert len(list((live.checkpoint / "spool").glob("*.plan"))) >= 4


def test_a_file_that_cannot_be_split_is_one_invalid_event(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a JSON array too long to hold in memory; the other files are read."""
    monkeypatch.setattr(cut, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(cut, "WHOLE_BYTES", 1_000)
    live.put(b"[" + b",".join(ndjson(m).strip() for m in messages("long", 20)) + b"]", "json")
    live.send(*messages("a", 2))
    with live.running() as query:
        snapshot = live.wait(lambda s: sent_total(s) == 2, query)
    assert snapshot.invalid_total == {"too_large": 1}
    (bad,) = live.quarantined
    assert "write one event a line" in bad.detail
    assert bad.raw.startswith(b"[{")


def test_files_that_were_read_are_deleted_when_configured(live: Live) -> None:
    """They are deleted once no batch that read them can run again; files of the last batches remain."""
    live.kept = 1
    live.sources = Sources(spool=SpoolSource(folder=str(live.spool), after_reading="delete"))
    paths = [live.send(*messages("a", 1))]
    with live.running() as query:
        for count in range(2, 5):
            live.wait(lambda s, n=count - 1: sent_total(s) == n, query)  # type: ignore[misc] # a default binds the number
            paths.append(live.send(*messages(f"b{count}", 1)))
        live.wait(lambda s: sent_total(s) == 4, query)
        live.wait_batch()
        live.wait_batch()
    assert not paths[0].exists()


def test_a_batch_that_runs_twice_reports_the_same_and_counts_nothing_twice(live: Live) -> None:
    """After a crash between publishing and Spark's commit, the batch runs again and judges at the same time."""
    live.breaks = lambda: bool(live.snapshots) and sent_total(live.snapshots[-1]) == 5
    live.send(*messages("a", 5))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 5)
        while query.isActive:
            live.wait_batch()
    assert "crashed before the batch was committed" in str(query.exception())
    crashed_id, crashed = live.batches[-1]

    live.breaks = lambda: False
    ran_before = len(live.batches)
    with live.running() as query:
        live.wait_batch()
        live.send(*messages("b", 2))
        last = live.wait(lambda s: sent_total(s) >= 7, query)
    again_id, again = live.batches[ran_before]
    assert (again_id, again) == (crashed_id, crashed)
    assert sent_total(last) == 7
    assert last.events_total["accepted"] == 7


def test_state_and_signals_survive_a_restart(live: Live) -> None:
    """Nothing is lost, counted twice, forgotten or announced again; events sent in the meantime are read."""
    now = wall_ms()
    live.send(
        event("received", "poisoned", now, sent_at=now - 1000, receive_count=3, invisible_until=now + 1),
        *messages("a", 3),
    )
    with live.running() as query:
        live.wait(lambda s: bool(s.firing), query)
    announced = [change.announcement for _, change in live.changes]
    assert [c.finding.key.signal for _, c in live.changes if c.finding.key.message_id == "poisoned"] == ["PoisonMessage"]

    live.send(*messages("b", 2))
    before = len(live.snapshots)
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 5 and s in live.snapshots[before:], query)
    assert [change.announcement for _, change in live.changes] == announced
    after = live.snapshots[before]
    assert [f.key.message_id for f in after.firing] == ["poisoned"]
    assert sent_total(after) in (3, 5)

    live.send(event("deleted", "poisoned", wall_ms()))
    with live.running() as query:
        live.wait(lambda s: s in live.snapshots[-3:] and not s.firing, query)
    assert [change.status for _, change in live.changes] == ["firing", "resolved"]


def move_ticks(live: Live, by_s: int) -> None:
    """Let the ticks have begun later, as if the clock had been ahead by so much until now, or earlier."""
    start = live.checkpoint / "sources" / "0" / "0"
    version, start_ms = start.read_text().splitlines()
    start.write_text(f"{version}\n{int(start_ms) + 1000 * by_s}")
    start.with_name(".0.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("by_s", "why"),
    [
        (3600, "set back by an hour: Spark fails each batch whose second lies before that of an earlier one"),
        (-5 * 365 * 86_400, "five years forward: Spark makes a tick for each of 158 million seconds"),
    ],
)
def test_a_clock_that_was_set_while_the_job_was_stopped_stops_nothing(live: Live, by_s: int, why: str) -> None:
    """The next batch runs, and takes no longer than others."""
    live.send(*messages("a", 3))
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 3, query)
    move_ticks(live, by_s)
    live.send(*messages("b", 2))
    before = len(live.batches)
    with live.running() as query:
        live.wait(lambda s: sent_total(s) == 5, query)
    assert len(live.batches) > before, why
