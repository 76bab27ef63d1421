"""What a destination is owed: kept in the checkpoint, in order, within bounds, and sent without anybody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import structlog

from sinks.append_once import AppendOnceFile
from sinks.records import Record, Undelivered
from streaming.delivery.outbox import Outbox
from streaming.delivery.sender import Deliveries, Delivery, delivery_families
from streaming.folder import LocalFolder


def records(*words: str) -> list[Record]:
    """One record per word."""
    return [Record(f"key of {word}", f'"{word}"') for word in words]


class Destination:
    """Takes records, unless it is away or hangs."""

    def __init__(self) -> None:
        self.away = False
        self.hangs = threading.Event()
        self.hangs.set()
        self.got: list[tuple[int, list[Record]]] = []
        self.closed = False

    def append(self, given: Sequence[Record], batch_id: int) -> None:
        """Take them, or not."""
        self.hangs.wait(30)
        if self.away:
            raise Undelivered("nobody answers")
        self.got.append((batch_id, list(given)))

    def close(self) -> None:
        """Note it."""
        self.closed = True


def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    """Wait for a thread."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outbox(folder: Path, **bounds: int) -> Outbox:
    """As after a start: it knows what is on disk."""
    return Outbox(LocalFolder(folder / "outbox"), "log", **bounds)


def delivery(folder: Path, destination: Destination, **bounds: int) -> Delivery:
    """That tries again soon."""
    return Delivery("log", destination, outbox(folder, **bounds), first_retry_s=0.01)


def test_what_a_destination_did_not_take_is_delivered_when_it_is_back_in_order(tmp_path: Path) -> None:
    """Under the batch it belongs to; nothing is left in the checkpoint."""
    destination = Destination()
    destination.away = True
    sending = delivery(tmp_path, destination)
    for batch_id, words in enumerate((["a"], [], ["b", "c"])):
        sending.put(records(*words), batch_id)
    until(lambda: sending.samples()["failed"] >= 2)
    assert sending.samples()["waiting"] == 3
    destination.away = False
    until(lambda: sending.samples()["waiting"] == 0)
    sending.put(records("d"), 3)
    until(lambda: len(destination.got) == 3)
    sending.close()
    assert destination.got == [(0, records("a")), (2, records("b", "c")), (3, records("d"))]
    assert list((tmp_path / "outbox").iterdir()) == []


def test_what_was_not_delivered_survives_the_process(tmp_path: Path) -> None:
    """The next one starts with it, before any batch."""
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
    until(lambda: len(destination.got) == 2)
    second.close()
    assert destination.got == [(0, records("a")), (1, records("b"))]


def test_a_destination_that_hangs_holds_up_neither_the_batch_nor_the_others(tmp_path: Path) -> None:
    """A minute a batch, as a topic without its brokers takes."""
    hanging, healthy = Destination(), Destination()
    hanging.hangs.clear()
    both = Deliveries([delivery(tmp_path / "1", hanging), delivery(tmp_path / "2", healthy)])
    started_s = time.monotonic()
    for batch_id in range(20):
        both.put(records(f"{batch_id}"), batch_id)
    assert time.monotonic() - started_s < 5
    until(lambda: len(healthy.got) == 20)
    assert hanging.got == []
    hanging.hangs.set()
    until(lambda: len(hanging.got) == 20)
    assert hanging.got == healthy.got


def test_a_batch_that_runs_again_replaces_what_waits_of_it(tmp_path: Path) -> None:
    """And what an undone run left of later ones goes."""
    box = outbox(tmp_path)
    for batch_id, words in ((4, ["a"]), (5, ["b", "b"]), (6, ["c"])):
        box.put(batch_id, records(*words))
    again = outbox(tmp_path)
    again.put(5, records("x"))
    assert again.records == 2
    for expected in ((4, records("a")), (5, records("x"))):
        assert again.oldest() == expected
        again.delivered(*expected)
    assert again.oldest() is None


def test_a_first_batch_with_nothing_to_say_still_takes_back_what_it_said_before(tmp_path: Path) -> None:
    """It may be the second run of a batch that ended before it was committed."""
    log = tmp_path / "log.ndjson"
    first = Delivery("log", AppendOnceFile(log, "here"), outbox(tmp_path))
    first.put(records("a"), 0)
    first.put(records("b"), 1)
    until(lambda: first.samples()["ok"] == 2)
    first.close()
    again = Delivery("log", AppendOnceFile(log, "here"), outbox(tmp_path))
    again.put([], 1)
    until(lambda: again.samples()["ok"] == 1)
    again.close()
    assert log.read_text() == '"a"\n'


@pytest.mark.parametrize("bound", ["most_records", "most_bytes"])
def test_a_destination_that_stays_away_does_not_fill_the_disk(tmp_path: Path, bound: str) -> None:
    """The oldest batches are given up, and that is said and counted."""
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


def test_an_entry_that_was_damaged_is_given_up_and_the_rest_is_sent(tmp_path: Path) -> None:
    """A disk that lost its power; never a reason to stop."""
    box = outbox(tmp_path)
    box.put(1, records("a"))
    box.put(2, records("b"))
    next((tmp_path / "outbox").glob("*1-1.out")).write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        assert box.oldest() == (2, records("b"))
    assert [(line["event"], line["batch_id"]) for line in logs] == [("undelivered_records_lost", 1)]


def test_a_full_checkpoint_is_an_error_of_the_batch(tmp_path: Path) -> None:
    """Then the batch must not be committed."""
    destination = Destination()
    sending = delivery(tmp_path, destination)
    (tmp_path / "outbox").write_text("not a folder")
    with pytest.raises(OSError, match="outbox"):
        sending.put(records("a"), 0)


def test_metrics_say_what_waits_and_how_it_goes(tmp_path: Path) -> None:
    """By destination."""
    destination = Destination()
    destination.away = True
    sending = delivery(tmp_path, destination)
    sending.put(records("a", "b"), 0)
    until(lambda: sending.samples()["failed"] >= 1)
    families = {family.name: list(family.samples) for family in delivery_families([sending])}
    assert families["queuewatch_outbox_records"] == [({"destination": "log"}, 2)]
    assert families["queuewatch_outbox_lost_records_total"] == [({"destination": "log"}, 0)]
    ((failed, many), (ok, none)) = families["queuewatch_outbox_deliveries_total"]
    assert (failed["result"], ok["result"], none) == ("failed", "ok", 0)
    assert many >= 1
    destination.away = False
    sending.close()
