"""The stateful stage with a state like Spark's: from batch to batch, in any order, in files or inline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.checkpoint.state_files import FileState, InlineState, StateKeeper, state_keeper
from streaming.core.reporting.merge import merge
from streaming.core.reporting.report import QueueSummary
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import QueueName, Settings
from streaming.spark import stateful_shard
from streaming.spark.decode import decode_and_route
from streaming.spark.stateful_shard import track_shard
from tests.streaming.spark.packets import T0, batch, event, ndjson


class State:
    """The state of one key, with the interface of `GroupState`."""

    def __init__(self) -> None:
        self._value: tuple[bytes] | None = None

    @property
    def exists(self) -> bool:
        """Return whether an earlier batch stored a state."""
        return self._value is not None

    @property
    def get(self) -> tuple[bytes]:
        """Return the state that the last batch stored."""
        assert self._value is not None
        return self._value

    def update(self, value: tuple[bytes]) -> None:
        """Store a state for the next batch."""
        self._value = value


def frame(*steps: tuple[bytes, int], part: int = 0) -> Any:
    """Return packets of one shard, from (record, step) pairs, as the shuffle delivers them."""
    table = pa.Table.from_batches(
        rows for record, _ in steps for rows in decode_and_route([0], Settings())(iter([batch(record)]))
    )
    table = table.set_column(1, "step_ms", pa.array([at for _, at in steps], pa.int64()))
    return table.set_column(2, "part", pa.array([part] * len(table), pa.int32())).to_pandas()


def run(state: State, keeper: StateKeeper, *frames: Any) -> list[tuple[int, ShardReport]]:
    """Run one batch and return the reports by step."""
    (out,) = track_shard(Settings(), keeper)((0,), iter(frames), state)  # type: ignore[arg-type] # a stand-in for GroupState
    return [(row.step_ms, ShardReport.from_bytes(row.report)) for row in out.itertuples()]


def orders(report: ShardReport) -> QueueSummary:
    """Return the summary of the queue `orders`."""
    return merge([report], Settings()).queues[QueueName("aws_sqs", "", "orders")]


def totals(report: ShardReport) -> dict[str, int]:
    """Return the totals of the queue `orders`."""
    summary = orders(report)
    return {name: summary.total(name) for name in ("sent", "received", "deleted")}


def sent(message_id: str, at: int = T0) -> bytes:
    """Return a record with one message."""
    return ndjson(event("sent", message_id, at, sent_at=at))


@pytest.fixture(params=["files", "inline"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> StateKeeper:
    """Both places where a state may be kept."""
    return state_keeper(str(tmp_path)) if request.param == "files" else InlineState()


def test_the_state_carries_over_from_batch_to_batch(keeper: StateKeeper) -> None:
    """Totals add up."""
    state = State()
    run(state, keeper, frame((sent("a"), T0)))
    ((_, report),) = run(state, keeper, frame((sent("b"), T0 + 1000)))
    assert totals(report) == {"sent": 2, "received": 0, "deleted": 0}


def test_a_batch_that_runs_again_reports_the_same(keeper: StateKeeper) -> None:
    """It starts from the state before it, which its first run did not change."""
    state, records = State(), frame((sent("b"), T0 + 1000))
    run(state, keeper, frame((sent("a"), T0)))
    before = state.get
    first = run(state, keeper, records)
    state.update(before)
    again = run(state, keeper, records)
    assert [(at, r.to_bytes()) for at, r in again] == [(at, r.to_bytes()) for at, r in first]


def test_ids_are_stored_apart_where_the_states_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch reads them with the state; Spark's own state stays whole."""
    monkeypatch.setattr(FileState, "ids_apart_from", 1)
    state, folder = State(), tmp_path / "shards"
    keeper = state_keeper(str(tmp_path))
    run(state, keeper, frame((sent("a"), T0)))
    assert len(list(folder.glob("*.layer"))) == 1
    ((_, report),) = run(state, keeper, frame((sent("a"), T0 + 1000), (sent("b"), T0 + 1000)))
    assert totals(report)["sent"] == 2
    whole = State()
    run(whole, InlineState(), frame((sent("a"), T0)))
    assert not InlineState().fetch(whole.get[0]).segments


def test_packets_are_processed_in_the_same_order_however_they_arrive(keeper: StateKeeper) -> None:
    """They are sorted by step, then by input task."""
    first, second = frame((sent("a"), T0), part=0), frame((sent("b"), T0), part=1)
    one = run(State(), keeper, first, second)
    other = run(State(), keeper, second, first)
    assert [r.to_bytes() for _, r in one] == [r.to_bytes() for _, r in other]


def test_every_step_of_a_batch_is_reported_in_order(keeper: StateKeeper) -> None:
    """A recorded batch contains several steps."""
    reports = run(State(), keeper, frame((sent("b", T0 + 5), T0 + 5), (sent("a"), T0)))
    assert [(at, totals(report)["sent"]) for at, report in reports] == [(T0, 1), (T0 + 5, 2)]


def test_a_packet_without_a_step_has_the_announced_time(keeper: StateKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live runs have no steps; this holds for such packets alone and beside packets with a step."""
    monkeypatch.setattr(stateful_shard, "task_now_ms", lambda: T0 + 7)
    monkeypatch.setattr(stateful_shard, "task_before_ms", lambda: 0)
    live = frame((sent("a"), 0))
    live["step_ms"] = None
    assert [at for at, _ in run(State(), keeper, live)] == [T0 + 7]
    assert [at for at, _ in run(State(), keeper, live, frame((sent("b"), T0)))] == [T0, T0 + 7]


def test_behind_its_source_the_job_is_at_the_newest_event(keeper: StateKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all packets of the batch, whichever shard their events belong to; but never earlier than the step before."""
    monkeypatch.setattr(stateful_shard, "task_now_ms", lambda: T0 + 600_000)
    monkeypatch.setattr(stateful_shard, "task_before_ms", lambda: T0 + 100)
    one, other = frame((sent("a", T0 + 50), 0)), frame((sent("b", T0 + 60), 0), part=1)
    other["newest_ms"] = T0 + 200
    for packets in (one, other):
        packets["step_ms"] = None
    assert [at for at, _ in run(State(), keeper, one)] == [T0 + 100]
    assert [at for at, _ in run(State(), keeper, one, other)] == [T0 + 200]
    tick = frame((b"[]", 0))
    tick["step_ms"] = None
    assert [at for at, _ in run(State(), keeper, tick)] == [T0 + 600_000]


def test_a_tick_advances_the_time(keeper: StateKeeper) -> None:
    """A visibility timeout ends without an event."""
    state = State()
    received = ndjson(event("received", "a", sent_at=T0, receive_count=1, invisible_until=T0 + 30_000))
    ((_, report),) = run(state, keeper, frame((received, T0)))
    assert orders(report).numbers["in_flight"] == 1
    ((_, report),) = run(state, keeper, frame((b"[]", T0 + 30_001)))
    assert orders(report).numbers["in_flight"] == 0
    assert orders(report).numbers["visible"] == 1
