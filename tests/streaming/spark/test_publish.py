"""The driver's work for a batch has the same result when it runs twice, whatever its destinations do."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, Row

from sinks.append_once import AppendOnceFile
from sinks.signal_log import signal_records
from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.state_files import InlineState, Pruner
from streaming.checkpoint.versions import VersionLedger
from streaming.core.events.packet import Quarantined
from streaming.core.settings import Settings
from streaming.delivery.outlets import Outlets
from streaming.folder import LocalFolder
from streaming.health.monitor import Monitor
from streaming.judge.findings.signals import SignalChange
from streaming.judge.snapshot import Snapshot
from streaming.spark.batch_time import BatchTimes
from streaming.spark.decode import decode_and_route
from streaming.spark.publish import Publisher
from streaming.spark.stateful_shard import track_shard
from tests.streaming.spark.packets import T0, batch, event, ndjson
from tests.streaming.spark.test_stateful_shard import State

KEYS = [0, 1]


class Shards:
    """The tracking of two shards without Spark: the rows of each batch."""

    def __init__(self) -> None:
        self._states = {key: State() for key in KEYS}

    def rows(self, at: int, *events: dict[str, Any]) -> list[Row]:
        """Return what the shards report at `at`, after `events`."""
        table = next(decode_and_route(KEYS, Settings())(iter([batch(ndjson(*events) or b"[]")]))).to_pandas()
        table["step_ms"] = at
        rows = []
        for key, state in self._states.items():
            stage = track_shard(Settings(), InlineState())
            (out,) = stage((key,), iter([table[table["shard"] == key]]), cast(Any, state))
            rows += [Row(**{**one, "state_files": []}) for one in out.to_dict("records")]
        return rows


class Batch:
    """A batch's frame, which may be collected only once: a second time would commit its state twice."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)
        self._collected = False

    def collect(self) -> list[Row]:
        """Return the rows."""
        assert not self._collected, "a batch must be collected once"
        self._collected = True
        return self._rows


class NoTimes(BatchTimes):
    """Batch times that are already in the rows."""

    def __init__(self) -> None:
        pass

    def announce(self, batch: Any, batch_id: int) -> int:
        """Do nothing: there are no tasks."""
        del batch
        return batch_id


def ledger_in(folder: Path) -> VersionLedger:
    """Return the ledger of a checkpoint."""
    return VersionLedger(LocalFolder(folder / "versions"))


def publisher_in(folder: Path, outlets: Outlets, **more: Any) -> Publisher:
    """Return a publisher of a checkpoint, as after a restart: it knows only what is on disk."""
    return Publisher(
        settings=Settings(),
        shards=len(KEYS),
        outlets=outlets,
        pruner=Pruner(InlineState(), len(KEYS)),
        times=NoTimes(),
        ledger=ledger_in(folder),
        **{"memories": MemoryStore(LocalFolder(folder / "judge")), "monitor": Monitor(), **more},
    )


class Published:
    """Records everything a publisher publishes."""

    def __init__(self, folder: Path) -> None:
        self.snapshots: list[Snapshot] = []
        self.quarantined: list[tuple[int, Sequence[Quarantined]]] = []
        self.changes: list[tuple[int, Sequence[SignalChange]]] = []
        self.log = AppendOnceFile(folder / "signals.ndjson", "here")
        self._folder = folder

    def publisher(self) -> Publisher:
        """Return a publisher as after a restart: it knows only what is on disk."""
        outlets = Outlets(self.snapshots.append, self._signals, lambda bad, n: self.quarantined.append((n, bad)))
        return publisher_in(self._folder, outlets)

    def _signals(self, changes: Sequence[SignalChange], batch_id: int) -> None:
        self.changes.append((batch_id, changes))
        self.log.append(signal_records(changes), batch_id)

    def text(self) -> str:
        """Return the signal log."""
        path = self._folder / "signals.ndjson"
        return path.read_text() if path.exists() else ""


def publish(publisher: Publisher, rows: Iterable[Row], batch_id: int) -> None:
    """Run one batch."""
    publisher(cast(DataFrame, Batch(rows)), batch_id)


def poison(at: int, receives: int) -> dict[str, Any]:
    """Return a delivery of the message `bad`."""
    return event("received", "bad", at, sent_at=T0, receive_count=receives, invisible_until=at + 30_000)


@pytest.fixture
def out(tmp_path: Path) -> Published:
    """The record of everything published."""
    return Published(tmp_path)


@pytest.mark.parametrize("restarted", [False, True], ids=["in the same process", "after a restart"])
def test_a_batch_that_runs_twice_publishes_the_same(out: Published, restarted: bool) -> None:
    """The snapshot, the signal log and the state for the next batch are the same."""
    shards = Shards()
    first, second, third = (
        shards.rows(T0, poison(T0, 1)),
        shards.rows(T0 + 60_000, poison(T0 + 60_000, 3)),
        shards.rows(T0 + 120_000, event("deleted", "bad", T0 + 110_000)),
    )
    publisher = out.publisher()
    publish(publisher, first, 0)
    publish(publisher, second, 1)
    log, snapshot = out.text(), out.snapshots[-1]
    assert "PoisonMessage" in log

    publisher = out.publisher() if restarted else publisher
    publish(publisher, second, 1)
    assert out.text() == log
    again = out.snapshots[-1]
    assert (again.queues, again.firing, again.events_total) == (snapshot.queues, snapshot.firing, snapshot.events_total)

    publish(publisher, third, 2)
    statuses = [change.status for _, changes in out.changes[-1:] for change in changes]
    assert statuses == ["resolved"]


def test_what_a_batch_left_is_not_looked_at_for_garbage(out: Published) -> None:
    """Collections found nothing in it, and took a fifth of the time of a step with ten thousand queues."""
    publish(out.publisher(), Shards().rows(T0, poison(T0, 1)), 0)
    left = out.snapshots[-1].queues
    assert not any(one is left for one in gc.get_objects())


def test_a_restart_neither_forgets_nor_repeats_a_firing_signal(out: Published) -> None:
    """The judge's memory survives the process."""
    shards = Shards()
    publish(out.publisher(), shards.rows(T0, poison(T0, 3)), 0)
    log = out.text()
    for batch_id in range(1, 4):
        publish(out.publisher(), shards.rows(T0 + 1000 * batch_id), batch_id)
        assert out.text() == log
        assert [finding.key.signal for finding in out.snapshots[-1].firing] == ["PoisonMessage"]


def test_nothing_is_published_before_every_shard_has_reported(out: Published) -> None:
    """Totals must not drop to those of some shards."""
    shards = Shards()
    publisher = out.publisher()
    publish(publisher, [], 0)
    publish(publisher, shards.rows(T0)[:1], 1)
    assert out.snapshots == []
    publish(publisher, shards.rows(T0 + 1000), 2)
    assert [snapshot.at_ms for snapshot in out.snapshots] == [T0 + 1000]


def test_the_last_step_of_a_batch_is_published(out: Published) -> None:
    """Signal changes of all its steps are announced."""
    shards = Shards()
    rows = [*shards.rows(T0, poison(T0, 3)), *shards.rows(T0 + 60_000, event("deleted", "bad", T0 + 50_000))]
    publish(out.publisher(), rows, 0)
    assert [snapshot.at_ms for snapshot in out.snapshots] == [T0 + 60_000]
    assert [change.status for change in out.changes[0][1]] == ["firing", "resolved"]


def test_invalid_events_go_to_the_quarantine_once(out: Published) -> None:
    """They are recorded with the batch they arrived in."""
    shards = Shards()
    publish(out.publisher(), shards.rows(T0, {"v": 1, "type": "nonsense"}), 0)
    publish(out.publisher(), shards.rows(T0 + 1000), 1)
    assert [(n, len(bad)) for n, bad in out.quarantined] == [(0, 1), (1, 0)]
    assert out.snapshots[-1].events_total["invalid"] == 1


def test_the_snapshot_is_published_before_records_for_destinations_are_stored(out: Published, tmp_path: Path) -> None:
    """The page does not wait for a disk, and records that could not be stored are stored when the batch runs again."""
    full = [True]

    def signals(changes: Sequence[SignalChange], batch_id: int) -> None:
        if full[0]:
            raise OSError("no space left on device")
        out.changes.append((batch_id, changes))

    memories = MemoryStore(LocalFolder(tmp_path / "judge"))
    outlets = Outlets(out.snapshots.append, signals, lambda bad, n: out.quarantined.append((n, bad)))
    publisher = publisher_in(tmp_path, outlets, memories=memories)
    rows = Shards().rows(T0, poison(T0, 3))
    with pytest.raises(OSError, match="no space left"):
        publish(publisher, rows, 0)
    assert len(out.snapshots) == 1
    assert not memories.before(1).firing
    full[0] = False
    publish(publisher, rows, 0)
    assert [change.status for _, changes in out.changes for change in changes] == ["firing"]
    assert memories.before(1).firing


def test_losses_of_the_checkpoint_that_this_one_was_made_from_stay_counted(tmp_path: Path) -> None:
    """The ledger continues from them: their counters do not restart at zero."""
    monitor, nowhere = Monitor(), Outlets(lambda _: None, lambda *_: None, lambda *_: None)
    publisher = publisher_in(tmp_path, nowhere, monitor=monitor, lost_before={"topic/0": 7})
    shards = Shards()
    for batch_id in range(2):
        publish(publisher, shards.rows(T0 + batch_id, poison(T0, 1)), batch_id)
        assert ledger_in(tmp_path).read(batch_id).lost == {"topic/0": 7}
    (lost,) = [family for family in monitor.families() if family.name == "queuewatch_pipeline_lost_records_total"]
    assert lost.samples == [({"topic": "topic", "partition": "0"}, 7)]


def test_garbage_collection_is_paused_while_a_batch_is_judged(tmp_path: Path) -> None:
    """With thousands of queues, collection took half of the time."""
    collecting: list[bool] = []
    publisher = publisher_in(tmp_path, Outlets(lambda _: collecting.append(gc.isenabled()), lambda *_: None, lambda *_: None))
    publish(publisher, Shards().rows(T0, poison(T0, 1)), 0)
    assert collecting == [False]
    assert gc.isenabled()
