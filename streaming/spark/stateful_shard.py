"""Track the state of one shard through one batch, inside a Python worker."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from streaming.checkpoint.state_files import StateKeeper
from streaming.core.clock import time_of_step
from streaming.core.events.packet import unpack
from streaming.core.gc_pause import gc_paused
from streaming.core.settings import Settings
from streaming.core.state.state import ShardState
from streaming.core.track import track
from streaming.spark.in_task import task_before_ms, task_now_ms
from streaming.spark.internals import prepare_worker

STATE_SCHEMA: Final = "state binary"
"""What a `StateKeeper` returns. Spark's state columns can never change; the content of the blob can."""

REPORT_SCHEMA: Final = (
    "shard int, step_ms long, report binary, state_bytes long, state_rows long, state_files array<string>, read string"
)
"""One row per shard and step. The state's size (packed bytes, rows) and files are those at the end of the batch. `read` in the
batch's first row counts the Kafka records of the whole batch given to this shard, as in `PACKET_SCHEMA`."""

Frame = Any
"""A pandas DataFrame. pandas is only used through pyarrow here."""
ShardStage = Callable[[tuple[Any, ...], Iterator[Frame], GroupState], Iterator[Frame]]


def track_shard(settings: Settings, keeper: StateKeeper) -> ShardStage:
    """Return the stage for `applyInPandasWithState`, keyed by shard: packets in, `REPORT_SCHEMA` out."""

    def stage(key: tuple[Any, ...], packets: Iterator[Frame], state: GroupState) -> Iterator[Frame]:
        prepare_worker()
        with gc_paused():
            packed_before = keeper.fetch(state.get[0]) if state.exists else keeper.first(int(key[0]))
            shard_state = ShardState.unpack(packed_before) if packed_before is not None else ShardState.empty()
            reports = []
            rows = 0
            read: Counter[str] = Counter()
            for step_ms, blobs in _by_step(packets, read):
                shard_state, report = track(shard_state, unpack(blobs), step_ms, settings)
                reports.append((step_ms, report.to_bytes()))
                rows = report.rows
            packed = shard_state.pack(keeper.ids_apart_from)
            kept = keeper.keep(int(key[0]), packed)
            state.update((kept,))
            yield _frame(int(key[0]), reports, packed.size, rows, keeper.files_of(kept), json.dumps(read) if read else None)

    return stage


def _by_step(frames: Iterable[Frame], read: Counter[str]) -> list[tuple[int, list[bytes]]]:
    """Return the packets of each step, ordered by time and then by input task, however the shuffle mixed them.

    Packets without a step are one step, at the same time in every shard: each has a packet of every task. The records read are
    added to `read`.
    """
    steps: defaultdict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
    live: list[tuple[int, int, bytes]] = []
    newest: list[int] = []
    for frame in frames:
        for counts in frame["read"].dropna():
            read.update(json.loads(counts))
        newest += frame["newest_ms"].dropna().astype("int64").tolist()
        for known, step_ms, part, packet in zip(
            frame["step_ms"].notna(), frame["step_ms"], frame["part"], frame["packet"], strict=True
        ):
            packets = steps[int(step_ms)] if known else live
            packets.append((int(part), len(packets), packet))
    if live:
        steps[time_of_step(task_now_ms(), max(newest, default=None), task_before_ms())] += live
    return [(step_ms, [packet for _, _, packet in sorted(steps[step_ms])]) for step_ms in sorted(steps)]


def _frame(
    shard: int, reports: list[tuple[int, bytes]], state_bytes: int, state_rows: int, files: list[str], read: str | None
) -> Frame:
    n = len(reports)
    return pa.table(
        {
            "shard": pa.array([shard] * n, pa.int32()),
            "step_ms": pa.array([step_ms for step_ms, _ in reports], pa.int64()),
            "report": pa.array([report for _, report in reports], pa.binary()),
            "state_bytes": pa.array([state_bytes] * n, pa.int64()),
            "state_rows": pa.array([state_rows] * n, pa.int64()),
            "state_files": pa.array([files] * n, pa.list_(pa.string())),
            "read": pa.array([read] + [None] * (n - 1), pa.string()),
        }
    ).to_pandas()
