"""Records not yet delivered are kept in the checkpoint, in order, within limits, and sent without blocking a batch."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog

from sinks.append_once import AppendOnceFile
from sinks.records import Record, Undelivered
from streaming.delivery.outbox import Outbox
from streaming.delivery.sender import Deliveries, Delivery, deliver_next, delivery_families
from streaming.folder import LocalFolder
from tests.waiting import until


def records(*words: str) -> list[Record]:
    """Return one record per word."""
    return [Record(f"key of {word}", f'"{word}"') for word in words]


class Destination:
    """Accepts records, unless it is down or hangs."""

    def __init__(self) -> None:
        self.away = False
        self.error: Exception = Undelivered("nobody answers")
        self.hangs = threading.Event()
        self.hangs.set()
        self.got: list[tuple[int, list[Record]]] = []
        self.closed = False

    def append(self, given: Sequence[Record], batch_id: int) -> None:
        """Accept the records, or raise its error when it is down."""
        self.hangs.wait(30)
        if self.away:
            raise self.error
        self.got.append((batch_id, list(given)))

    def close(self) -> None:
        """Record that it was closed."""
        self.closed = True


def outbox(folder: Path, **bounds: int) -> Outbox:
    """Return the outbox as after a start, with the records on disk."""
    return Outbox(LocalFolder(folder / "outbox"), "log", **bounds)


def delivery(folder: Path, destination: Destination, **bounds: int) -> Delivery:
    """Return a delivery that retries quickly."""
    return Delivery("log", destination, outbox(folder, **bounds), first_retry_s=0.01)


def test_undelivered_records_are_sent_in_order_when_the_destination_is_back(tmp_path: Path) -> None:
    """They are sent under their own batch ids, and nothing is left in the checkpoint."""
    destination = Destination()
    destination.away = True
    sending = delivery(tmp_path, destination)
    for batch_id, words in enumerate((["a"], [], ["b", "c"])):
        sending.put(records(*words), batch_id)
    until(lambda: sending.samples()["failed"] >= 2, "two deliveries failed")
    assert sending.samples()["waiting"] == 3
    destination.away = False
    until(lambda: sending.samples()["waiting"] == 0, "nothing waits")
    sending.put(records("d"), 3)
    until(lambda: len(destination.got) == 3, "three batches arrived")
    sending.close()
    assert destination.got == [(0, records("a")), (2, records("b", "c")), (3, records("d"))]
    assert list((tmp_path / "outbox").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "said", "traced"),
    [
        (Undelivered("nobody answers"), "Undelivered('nobody answers')", False),
        (KeyError("version"), "KeyError('version')", True),
    ],
    ids=["an outage", "a defect"],
)
def test_the_log_tells_a_defect_from_an_outage(tmp_path: Path, error: Exception, said: str, traced: bool) -> None:
    """It names the kind of the error; a defect comes with its traceback."""
    destination = Destination()
    destination.away, destination.error = True, error
    with structlog.testing.capture_logs() as logs:
        sending = delivery(tmp_path, destination)
        sending.put(records("a"), 0)
        until(lambda: sending.samples()["failed"] >= 2, "two deliveries failed")
        sending.close()
    (failed,) = [line for line in logs if line["event"] == "destination_failed"]
    assert (failed["error"], failed["exc_info"]) == (said, traced)


def test_undelivered_records_survive_the_process(tmp_path: Path) -> None:
    """The next process sends them first, before any batch."""
    destination = Destination()
    destination.away = True
    first = delivery(tmp_path, destination)
    first.put(records("a"), 0)
    first.put(records("b"), 1)
    with structlog.testing.capture_logs() as logs:
        first.close(within_s=1)
    assert [line["records"] for line in logs if line["event"] == "undelivered_records_wait"] == [2]
    destination.away = False
    second = delivery(tmp_path, destination)
    until(lambda: len(destination.got) == 2, "two batches arrived")
    second.close()
    assert destination.got == [(0, records("a")), (1, records("b"))]


def test_a_destination_that_hangs_blocks_neither_the_batch_nor_the_others(tmp_path: Path) -> None:
    """A topic without its brokers takes a minute per batch."""
    hanging, healthy = Destination(), Destination()
    hanging.hangs.clear()
    both = Deliveries([delivery(tmp_path / "1", hanging), delivery(tmp_path / "2", healthy)])
    for batch_id in range(20):
        both.put(records(f"{batch_id}"), batch_id)
    assert hanging.got == []  # a batch that had waited for it would have ended with its records there
    until(lambda: len(healthy.got) == 20, "the healthy destination has every batch")
    assert hanging.got == []
    hanging.hangs.set()
    until(lambda: len(hanging.got) == 20, "the destination that hung has every batch")
    assert hanging.got == healthy.got


def test_a_batch_that_runs_again_replaces_its_waiting_records(tmp_path: Path) -> None:
    """Records of later batches from an undone run are dropped."""
    box = outbox(tmp_path)
    for batch_id, words in ((4, ["a"]), (5, ["b", "b"]), (6, ["c"])):
        box.put(batch_id, records(*words))
    again = outbox(tmp_path)
    again.put(5, records("x"))
    assert again.records == 2
    for expected in ((4, records("a")), (5, records("x"))):
        assert again.oldest() == expected
        again.delivered()
    assert again.oldest() is None


@pytest.mark.parametrize("again", [records("x"), records("x", "y")], ids=["as many", "more"])
def test_a_batch_that_is_put_again_while_it_is_sent_waits_with_its_new_records(tmp_path: Path, again: list[Record]) -> None:
    """The thread that sends removes only what it sent."""
    box = outbox(tmp_path)
    box.put(5, records("a"))
    assert box.oldest() == (5, records("a"))
    box.put(5, again)
    box.delivered()
    assert box.records == len(again)
    assert box.oldest() == (5, again)
    box.delivered()
    assert box.oldest() is None
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_batch_that_is_put_again_while_it_is_read_is_not_lost(tmp_path: Path) -> None:
    """Its file is gone when the thread that sends opens it; that is no damage."""
    again = records("x", "y")

    class Replaced(LocalFolder):
        def read(self, name: str) -> bytes | None:
            if box.records == 1:
                box.put(5, again)
            return super().read(name)

    box = Outbox(Replaced(tmp_path), "log")
    box.put(5, records("a"))
    with structlog.testing.capture_logs() as logs:
        assert box.oldest() == (5, again)
    assert logs == []
    assert box.given_up == 0


@pytest.mark.parametrize("step", ["delete", "write"])
def test_a_crash_while_a_batch_is_put_again_leaves_none_of_its_earlier_records(tmp_path: Path, step: str) -> None:
    """They would be sent after a later start, and a log would be cut back to their batch."""

    class Killed(LocalFolder):
        pass

    def kill(*_: object) -> None:
        raise OSError("killed")

    log = tmp_path / "log.ndjson"
    outbox(tmp_path).put(1, records("a"))
    setattr(Killed, step, kill)
    with pytest.raises(OSError, match="killed"):
        Outbox(Killed(tmp_path / "outbox"), "log").put(1, records("b", "c"))
    for batch_id, words in ((1, ["b", "c"]), (2, ["d"]), (3, ["e"])):
        box = outbox(tmp_path)
        box.put(batch_id, records(*words))
        while deliver_next(box, AppendOnceFile(log, "here")):
            pass
    assert log.read_text() == '"b"\n"c"\n"d"\n"e"\n'


def test_an_empty_repeated_batch_still_retracts_its_earlier_records(tmp_path: Path) -> None:
    """It may be the second run of a batch that ended before its commit."""
    log = tmp_path / "log.ndjson"
    first = Delivery("log", AppendOnceFile(log, "here"), outbox(tmp_path))
    first.put(records("a"), 0)
    first.put(records("b"), 1)
    until(lambda: first.samples()["ok"] == 2, "two batches were delivered")
    first.close()
    again = Delivery("log", AppendOnceFile(log, "here"), outbox(tmp_path))
    again.put([], 1)
    until(lambda: again.samples()["ok"] == 1, "the repeated batch was delivered")
    again.close()
    assert log.read_text() == '"a"\n'


def test_a_batch_that_runs_again_in_the_same_process_retracts_its_records(tmp_path: Path) -> None:
    """Its query was restarted, as on a full disk; what it read since may have made a signal of its first run untrue."""
    log = tmp_path / "log.ndjson"
    sender = Delivery("log", AppendOnceFile(log, "here"), outbox(tmp_path))
    sender.put(records("a"), 0)
    sender.put(records("untrue"), 1)
    until(lambda: sender.samples()["ok"] == 2, "two batches were delivered")
    sender.put([], 1)
    until(lambda: sender.samples()["ok"] == 3, "the repeated batch was delivered")
    sender.put([], 2)
    sender.close()
    assert sender.samples()["ok"] == 3, "a batch without records costs nothing"
    assert log.read_text() == '"a"\n'


@pytest.mark.parametrize("bound", ["most_records", "most_bytes"])
def test_a_destination_that_stays_down_does_not_fill_the_disk(tmp_path: Path, bound: str) -> None:
    """The oldest batches are dropped, logged and counted."""
    box = outbox(tmp_path, **{bound: 500})
    with structlog.testing.capture_logs() as logs:
        for batch_id in range(60):
            box.put(batch_id, records(*(f"{batch_id}-{n}" for n in range(20))))
    entry = box.oldest()
    assert entry is not None
    assert entry[0] > 30
    assert box.records + box.given_up == 60 * 20
    assert sum(line["records"] for line in logs if line["event"] == "undelivered_records_lost") == box.given_up
    assert outbox(tmp_path).records == box.records


def test_records_that_are_delivered_while_they_are_put_do_not_fail_the_batch(tmp_path: Path) -> None:
    """The thread that sends may be as fast as the one that stores."""
    sent: list[str] = []

    class Emptied(Outbox):
        def _keep_within_bounds(self) -> None:
            while (entry := self.oldest()) is not None:
                self.delivered()
                sent.extend(record.line for record in entry[1])
            super()._keep_within_bounds()

    Emptied(LocalFolder(tmp_path), "log").put(1, [Record("a", "line")])
    assert sent == ["line"]


def test_a_damaged_entry_is_dropped_and_the_rest_is_sent(tmp_path: Path) -> None:
    """A power cut can damage an entry; the service must not stop for it."""
    box = outbox(tmp_path)
    box.put(1, records("a"))
    box.put(2, records("b"))
    next((tmp_path / "outbox").glob("*1-1.out")).write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        assert box.oldest() == (2, records("b"))
    assert [(line["event"], line["batch_id"]) for line in logs] == [("undelivered_records_lost", 1)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "KeyError('version')"),
        (b"[]", "TypeError"),
        (b'{"version": 2, "records": []}', "it has version 2"),
        (b'{"version": 1}', "KeyError('records')"),
        (b'{"version": 1, "records": 7}', "TypeError"),
        (b'{"version": 1, "records": [["a key"]]}', "TypeError"),
        (b'{"version": 1, "records": [["a key", null]]}', "a record is two strings"),
        (b"[" * 100_000, "RecursionError"),
    ],
)
def test_an_entry_that_holds_something_else_is_dropped_and_the_rest_is_sent(tmp_path: Path, body: bytes, why: str) -> None:
    """Valid JSON is not yet an entry; the destination would wait for this one for ever."""
    box = outbox(tmp_path)
    box.put(1, records("a"))
    box.put(2, records("b"))
    next((tmp_path / "outbox").glob("*1-1.out")).write_bytes(zlib.compress(body))
    with structlog.testing.capture_logs() as logs:
        assert box.oldest() == (2, records("b"))
    assert [(line["event"], line["batch_id"]) for line in logs] == [("undelivered_records_lost", 1)]
    assert why in logs[0]["reason"]


def test_an_unwritable_checkpoint_fails_the_batch(tmp_path: Path) -> None:
    """The batch must then not be committed."""
    destination = Destination()
    sending = delivery(tmp_path, destination)
    (tmp_path / "outbox").write_text("not a folder")
    with pytest.raises(OSError, match="outbox"):
        sending.put(records("a"), 0)


def test_metrics_show_waiting_lost_and_sent_records(tmp_path: Path) -> None:
    """Each series has the destination as a label."""
    destination = Destination()
    destination.away = True
    sending = delivery(tmp_path, destination)
    sending.put(records("a", "b"), 0)
    until(lambda: sending.samples()["failed"] >= 1, "a delivery failed")
    families = {family.name: list(family.samples) for family in delivery_families([sending])}
    assert families["queuewatch_outbox_records"] == [({"destination": "log"}, 2)]
    assert families["queuewatch_outbox_lost_records_total"] == [({"destination": "log"}, 0)]
    ((failed, many), (ok, none)) = families["queuewatch_outbox_deliveries_total"]
    assert (failed["result"], ok["result"], none) == ("failed", "ok", 0)
    assert many >= 1
    destination.away = False
    sending.close()
