"""Append records to a file or topic: the file keeps one copy of every line, even if a batch runs twice."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

from sinks.append_once import AppendOnceFile
from sinks.records import Record, Undelivered
from sinks.signal_log import signal_records
from sinks.topic import RecordTopic, durable_producer
from streaming.judge.findings.signals import SignalChange, SignalStatus
from tests.services import kafka as kafka_service
from tests.services.kafka import Kafka
from tests.services.provider import Services
from tests.sinks.fakes import NOW_MS, shop_snapshot

FIRING = shop_snapshot().firing


def change(number: int, status: SignalStatus = "firing") -> Record:
    finding = FIRING[number % len(FIRING)]
    (record,) = signal_records([SignalChange(NOW_MS + number, status, finding, f"announcement-{number}")])
    return record


def announced(path: Path) -> list[str]:
    return [json.loads(line)["announcement"].removeprefix("announcement-") for line in path.read_text().splitlines()]


def test_batches_are_appended_in_order(tmp_path: Path) -> None:
    """The folder is created if it does not exist."""
    path = tmp_path / "logs" / "signals.ndjson"
    log = AppendOnceFile(path)
    log.append([change(1), change(2)], batch_id=7)
    log.append([], batch_id=8)
    log.append([change(3)], batch_id=9)
    assert announced(path) == ["1", "2", "3"]


@pytest.mark.parametrize("torn", [0, 1, 40, 5_000], ids=lambda n: f"{n} bytes short")
def test_a_batch_that_runs_twice_leaves_one_copy(tmp_path: Path, torn: int) -> None:
    """The process died after writing part of a batch; another process runs the batch again."""
    path = tmp_path / "signals.ndjson"
    AppendOnceFile(path).append([change(1)], batch_id=1)
    kept = path.stat().st_size
    AppendOnceFile(path).append([change(2), change(3)], batch_id=2)
    os.truncate(path, max(kept, path.stat().st_size - torn))
    again = AppendOnceFile(path)
    again.append([change(2), change(3)], batch_id=2)
    again.append([change(4)], batch_id=3)
    assert announced(path) == ["1", "2", "3", "4"]


def test_a_rerun_without_lines_removes_those_of_the_first_run(tmp_path: Path) -> None:
    """The result of the second run replaces that of the first."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path)
    log.append([change(1)], batch_id=1)
    log.append([change(2)], batch_id=2)
    log.append([], batch_id=2)
    assert announced(path) == ["1"]


@pytest.mark.parametrize("back_to", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("dies", [False, True], ids=["", "killed once more"])
def test_batches_that_run_again_after_a_rollback_leave_one_copy(tmp_path: Path, back_to: int, dies: bool) -> None:
    """A damaged checkpoint goes back several batches, which announce the same again. Batch 4 has no lines."""
    path = tmp_path / "signals.ndjson"
    lines = {1: [change(1)], 2: [change(2)], 3: [change(3), change(4)], 4: [], 5: [change(5)], 6: [change(6)]}
    log = AppendOnceFile(path)
    for batch_id, records in lines.items():
        log.append(records, batch_id)
    for _ in range(1 + dies):
        log = AppendOnceFile(path)
        for batch_id in range(back_to, 7 - dies):
            log.append(lines[batch_id], batch_id)
    log.append([change(6)], batch_id=6)
    assert announced(path) == ["1", "2", "3", "4", "5", "6"]


def test_a_rollback_cuts_nothing_of_a_file_that_was_rotated_meanwhile(tmp_path: Path) -> None:
    """Where lines of earlier batches began is not where anything begins in the new file."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path)
    for number in (1, 2, 3):
        log.append([change(number)], batch_id=number)
    path.rename(tmp_path / "signals.ndjson.1")
    log.append([change(4)], batch_id=4)
    log.append([change(5)], batch_id=5)
    log.append([change(5)], batch_id=5)
    log.append([change(3)], batch_id=3)
    log.append([change(4)], batch_id=4)
    assert announced(tmp_path / "signals.ndjson.1") == ["1", "2", "3"]
    assert announced(path) == ["3", "4"]


def test_a_copy_of_a_checkpoint_from_long_ago_does_not_cut_what_was_logged_since(tmp_path: Path) -> None:
    """Its batches are not those that run again."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path)
    log.append([change(1)], batch_id=5_000)
    log.append([change(2)], batch_id=5_001)
    log.append([change(3)], batch_id=10)
    log.append([change(4)], batch_id=11)
    assert announced(path) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("dies", [False, True], ids=["", "killed once more"])
def test_a_checkpoint_made_from_another_one_leaves_one_copy(tmp_path: Path, dies: bool) -> None:
    """Of the old one, batch 7 was committed last. Its lines are in the file but still waited, and batches 8 and 9 run again."""
    path = tmp_path / "signals.ndjson"
    old = AppendOnceFile(path, "old")
    for number in (5, 7, 8, 9):
        old.append([change(number)], batch_id=number)
    for _ in range(1 + dies):
        new = AppendOnceFile(path, "new", continues={"old": 8})
        new.append([change(7)], batch_id=-1)
        new.append([change(8), change(9)], batch_id=0)
    new.append([change(10)], batch_id=1)
    assert announced(path) == ["5", "7", "8", "9", "10"]


def test_a_checkpoint_made_from_another_one_long_ago_cuts_nothing(tmp_path: Path) -> None:
    """The old one went on for longer than what it read can be expected to be there still."""
    path = tmp_path / "signals.ndjson"
    old = AppendOnceFile(path, "old")
    for batch_id in (7, 8, 300):
        old.append([change(batch_id)], batch_id)
    AppendOnceFile(path, "new", continues={"old": 8}).append([change(9)], batch_id=0)
    assert announced(path) == ["7", "8", "300", "9"]


def test_a_new_checkpoint_does_not_cut_lines_of_the_old_one(tmp_path: Path) -> None:
    """The new checkpoint's batches count from zero again."""
    path = tmp_path / "signals.ndjson"
    AppendOnceFile(path, stream="old").append([change(1)], batch_id=0)
    AppendOnceFile(path, stream="new").append([change(2)], batch_id=0)
    assert announced(path) == ["1", "2"]


def test_a_torn_line_of_a_lost_run_is_cut_before_the_next_line(tmp_path: Path) -> None:
    """Otherwise the next line would be appended to the torn one, and both would be lost."""
    path = tmp_path / "signals.ndjson"
    AppendOnceFile(path, stream="old").append([change(1), change(2)], batch_id=5)
    os.truncate(path, path.stat().st_size - 9)
    AppendOnceFile(path, stream="new").append([change(3)], batch_id=0)
    assert announced(path) == ["1", "3"]


def test_a_file_that_was_moved_away_is_created_again(tmp_path: Path) -> None:
    """logrotate without copytruncate moves the file, while the mark still points into the old one."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path)
    log.append([change(1)], batch_id=1)
    path.rename(tmp_path / "signals.ndjson.old")
    log.append([change(2)], batch_id=2)
    log.append([change(2)], batch_id=2)
    assert announced(path) == ["2"]


def test_a_full_file_is_rotated_between_batches(tmp_path: Path) -> None:
    """The newest files are kept, each line is in exactly one file, and a rerun stays in the file of its first run."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path, max_bytes=1, keep_files=2)
    for batch in range(1, 5):
        log.append([change(batch)], batch)
        log.append([change(batch)], batch)
    files = [path, tmp_path / "signals.ndjson.1", tmp_path / "signals.ndjson.2"]
    assert [announced(file) for file in files] == [["4"], ["3"], ["2"]]
    assert not (tmp_path / "signals.ndjson.3").exists()


def test_a_link_stays_where_it_is_when_the_file_is_rotated(tmp_path: Path) -> None:
    """It may lead to a larger disk: were it moved, the next lines would be written to the smaller one."""
    disk, path = tmp_path / "disk", tmp_path / "signals.ndjson"
    disk.mkdir()
    path.symlink_to(disk / "log")
    log = AppendOnceFile(path, max_bytes=1)
    for batch in (1, 2):
        log.append([change(batch)], batch)
    assert path.is_symlink()
    assert [announced(file) for file in (disk / "log", disk / "log.1")] == [["2"], ["1"]]


def test_an_unreadable_mark_does_not_stop_the_log(tmp_path: Path) -> None:
    """Writing a line twice is better than losing it."""
    path = tmp_path / "signals.ndjson"
    log = AppendOnceFile(path)
    log.append([change(1)], 1)
    (tmp_path / "signals.ndjson.batch").write_text("{half")
    log.append([change(2)], 2)
    assert announced(path) == ["1", "2"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error says which file and what to do."""
    path = tmp_path / "signals.ndjson"
    path.mkdir()
    with pytest.raises(Undelivered, match=r"signals\.ndjson cannot be written: .*configure another path"):
        AppendOnceFile(path).append([change(1)], 1)


def test_lines_are_on_disk_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is synced before the lines, each with its own fsync: this order survives a crash. So does a new file's name."""
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    log = AppendOnceFile(tmp_path / "signals.ndjson", max_bytes=1_500)
    in_old_file = ["signals.ndjson.batch.part", tmp_path.name, "signals.ndjson"]
    in_new_file = [*in_old_file, tmp_path.name]
    for batch, rotated, expected in ((1, False, in_new_file), (2, False, in_old_file), (3, True, in_new_file)):
        synced.clear()
        log.append([change(batch)], batch)
        assert synced == expected
        assert (tmp_path / "signals.ndjson.1").exists() is rotated


class NoAcknowledgement:
    """A producer whose brokers do not answer."""

    closed = 0

    def close(self, **_: object) -> None:
        self.closed += 1

    def send(self, *_: object, **__: object) -> Any:
        return self

    def get(self, timeout: float) -> None:
        raise TimeoutError(f"no answer in {timeout} s")


def test_a_topic_that_does_not_answer_is_named_and_reconnected() -> None:
    """The batch must not count as published. The first connection is made only when there is something to send."""
    made: list[NoAcknowledgement] = []

    def connect() -> NoAcknowledgement:
        made.append(NoAcknowledgement())
        return made[-1]

    topic = RecordTopic(connect, "signals", timeout_s=1)
    assert made == []
    for tries in (1, 2):
        with pytest.raises(Undelivered, match=r"'signals' did not accept 1 records: no answer.*check that the brokers"):
            topic.append([change(1)], 1)
        assert [producer.closed for producer in made] == [1] * tries


def test_a_topic_leaves_no_thread_behind_when_its_broker_is_gone(services: Services) -> None:
    """The connection is made anew at each attempt: during an outage, every one would leave a thread and its sockets."""
    with services.running(kafka_service.start()) as kafka:
        bootstrap = {"bootstrap_servers": [kafka.bootstrap], "client_id": "of-this-test"}
        topic = RecordTopic(lambda: durable_producer(bootstrap), kafka.create_topic(), timeout_s=1)
        topic.append([change(1)], 1)
    assert _of_this_test()
    with pytest.raises(Undelivered, match="check that the brokers answer"):
        topic.append([change(2)], 2)
    deadline_s = time.monotonic() + 10
    while _of_this_test() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not _of_this_test()


def _of_this_test() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("of-this-test")]


def test_a_topic_keys_every_change_by_its_announcement(kafka: Kafka) -> None:
    """On a real broker, a batch that runs twice writes the same keys and values twice."""
    topic = kafka.create_topic()
    log = RecordTopic(lambda: durable_producer({"bootstrap_servers": [kafka.bootstrap]}), topic)
    changes = [change(1), change(2, "resolved")]
    log.append(changes, 1)
    log.append(changes, 1)
    log.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=[kafka.bootstrap],
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    records = []
    for record in consumer:
        records.append((record.key, json.loads(record.value)))
        if len(records) == 4:
            break
    consumer.close()
    assert [key for key, _ in records] == [b"announcement-1", b"announcement-2"] * 2
    assert records[:2] == records[2:]
    assert [line["status"] for _, line in records[:2]] == ["firing", "resolved"]
