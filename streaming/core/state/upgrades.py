"""Upgrade a packed state of an earlier format: one function per step from a version to the next.

The format of a state has two parts that change independently: its head (columns and header, see `ShardState.pack`), and its
tombstone segments (columns, see `tombstones`). A head records its version; a segment without one has version 2, because
segments were written once and kept by name while the heads around them moved on to later versions.

To change the format: raise `FORMAT_VERSION`, add the step from the version before to `STEPS`, and store a checkpoint written
by the release before (`scripts/store_checkpoint.py`), which the tests then read with every later release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streaming.core.columns import Array, UnreadableBlob
from streaming.core.settings import QueueName
from streaming.core.state.consumer_states import ConsumerState, ConsumerStates
from streaming.core.state.duration_buckets import DURATIONS, SUM, UNDIVIDED
from streaming.core.state.interner import GROUP_COLUMNS
from streaming.core.state.loss_reasons import pack_reasons
from streaming.core.state.packed_counts import PackedCounts
from streaming.core.state.queue_table import TIMEOUT, QueueTable
from streaming.core.state.queues import TOTALS, Depth, QueueRecord, Reported
from streaming.core.state.variable_length_rows import pack_lists

Columns = dict[str, Array]
Header = dict[str, Any]

FORMAT_VERSION: Final = 16
"""The version that is written."""
OLDEST_READABLE: Final = 2
"""The oldest version that can still be read."""


def _keep_head(columns: Columns, header: Header) -> None:
    """Leave the head unchanged."""


def _keep_segment(columns: Columns) -> None:
    """Leave the segments unchanged: a missing column counts as all default."""


@dataclass(frozen=True, slots=True)
class Step:
    """The step from one version to the next. Both functions modify their arguments in place."""

    head: Callable[[Columns, Header], None] = _keep_head
    segment: Callable[[Columns], None] = _keep_segment


def _count_failures(columns: Columns, header: Header) -> None:
    """Upgrade to version 3: add totals from `touched` on, and results by group and consumer; they start at zero."""
    for record in header["queues"]:
        record[2] += [0] * (15 - len(record[2]))
    for kind in ("g", "c"):
        for name in ("finished", "failed"):
            columns[f"{kind}.{name}"] = np.zeros(len(columns[f"{kind}.queue"]), dtype=np.int64)


def _queues_as_columns(columns: Columns, header: Header) -> None:
    """Upgrade to version 4: convert queues from a list of records in the header to columns."""
    columns |= QueueTable.of(_record(values) for values in header.pop("queues")).pack()


_TIMES_IN_3: Final = (
    "purged_at",
    "last_event_at",
    "last_received_at",
    "last_settled_at",
    "last_state_at",
    "skew_ms",
    "youngest_sent_at",
    "youngest_received_at",
)
"""The last values of a queue's record, in its order."""


def _record(values: list[Any]) -> QueueRecord:
    name, attributes, totals, _, depths, empty_from, ordered, dead_letter, messages_seen, *times = values
    reported = {attribute: Reported(at, value) for attribute, (at, value) in attributes.items()}
    known = [Depth(*depth) for depth in depths]
    totals = [*totals, *[0] * (len(TOTALS) - len(totals))]
    return QueueRecord(
        name=QueueName(*name),
        attributes=reported,
        totals=totals,
        depths=known,
        durations={},
        empty_from=empty_from,
        ordered=ordered,
        dead_letter=dead_letter,
        dead_letter_reported=dead_letter,
        messages_seen=messages_seen,
        **dict(zip(_TIMES_IN_3, times, strict=False)),
    )


_RENAMED_IN_5: Final = {
    "q.visible_told_at": "q.visible_counted_at",
    "q.redrive_told": "q.redrive_reported",
    "q.told.lengths": "q.attributes.lengths",
    "q.told.bytes": "q.attributes.bytes",
}


def _rename_columns(columns: Columns, header: Header) -> None:
    """Upgrade to version 5: rename columns and the list of segments, and add when a message was last left out.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    for before, now in _RENAMED_IN_5.items():
        if before in columns:
            columns[now] = columns.pop(before)
    header["segments"] = header.pop("frozen")
    columns.setdefault("q.left_out_at", np.zeros_like(columns["q.last_event_at"]))


def _keep_undivided_durations(columns: Columns) -> None:
    """Keep counts in classic buckets, with their sums, apart from those in finer buckets."""
    if "q.w.lengths" not in columns:
        return
    lengths, key, counts = (columns.pop(f"q.w.{name}") for name in ("lengths", "bucket", "count"))
    queue = np.repeat(np.arange(len(lengths)), lengths)
    pairs, sums = [queue << 16 | key + (UNDIVIDED << 8)], [counts]
    for kind, name in enumerate(DURATIONS):
        counted = np.unique(queue[key >> 8 == kind])
        pairs.append(counted << 16 | (kind + UNDIVIDED) << 8 | SUM)
        sums.append(columns[f"q.t.{name}_ms"][counted])
    every, found = np.concatenate(pairs), np.concatenate(sums)
    order = np.argsort(every)
    columns["q.durations"] = np.frombuffer(PackedCounts.of(every[order], found[order]).to_bytes(), dtype=np.uint8)


def _to_version_7(columns: Columns, header: Header) -> None:
    """Upgrade to version 7: finer buckets of durations, distinct attributes, queues of segments, when consumers last failed.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    _keep_undivided_durations(columns)
    for kind in ("g", "c"):
        failed = columns[f"{kind}.failed"] > 0
        columns[f"{kind}.failed_at"] = np.where(failed, header["high_water"], 0).astype(np.int64)
    columns.setdefault("q.attributes.of", np.arange(len(columns["q.attributes.lengths"]), dtype=np.int32))
    columns |= pack_lists("s.queues", [np.array(segment.pop(3), dtype=np.int64) for segment in header["segments"]])


def _ids_in_head(_: Columns, header: Header) -> None:
    """Upgrade to version 8: no ids are in segments of their own yet."""
    header["ids"] = []


def _ids_alone(_: Columns, header: Header) -> None:
    """Upgrade to version 9: the segments of ids hold nothing else. Whether a column holds distances, its name says."""
    header["ids"] = [[name, rows, True] for name, rows in header["ids"]]


def _to_version_10(columns: Columns, header: Header) -> None:
    """Upgrade to version 10: add when visibility timeouts changed, whether they are known, and refused settlements.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    for name in TIMEOUT:
        columns.setdefault(f"q.{name}", np.zeros_like(columns["q.last_state_at"]))
    if "q.l.visibility_known" not in columns:
        columns["q.l.visibility_known"] = np.zeros_like(columns["q.last_state_at"])
        columns["q.limits_by"] = np.zeros_like(columns["q.limits_by"])  # recomputed on first use
    header.setdefault("refusals", [])


def _to_version_11(columns: Columns, header: Header) -> None:
    """Upgrade to version 11: convert the reasons of losses from pairs in the header to columns, add the last delivery and counts.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    if "q.l.last_delivery" not in columns:
        columns["q.l.last_delivery"] = np.zeros_like(columns["q.last_state_at"])
        columns["q.limits_by"] = np.zeros_like(columns["q.limits_by"])  # recomputed on first use
    for name in ("without_visible_from", "without_visible_until"):
        columns.setdefault(f"q.{name}", np.zeros_like(columns["q.last_state_at"]))  # from the next counts on
    of_losses, header["loss_reasons"] = pack_reasons({int(key): reason for key, reason in header["loss_reasons"]})
    columns |= of_losses


def _to_version_12(columns: Columns, _: Header) -> None:
    """Upgrade to version 12: add how far groups were received, which queues block them, delays, and messages found later.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    for kind in ("g", "c"):
        for name in GROUP_COLUMNS:
            dtype = np.int64 if name == "reached_at" else np.uint64
            columns[f"{kind}.{name}"] = np.zeros(len(columns[f"{kind}.queue"]), dtype=dtype)
    columns.setdefault("q.t.found_later", np.zeros_like(columns["q.t.reconciled"]))
    if "q.l.blocks_groups" not in columns:
        for name in ("blocks_groups", "delay_ms"):
            columns[f"q.l.{name}"] = np.zeros_like(columns["q.last_state_at"])
        columns["q.limits_by"] = np.zeros_like(columns["q.limits_by"])  # recomputed on first use


def _to_version_13(columns: Columns, _: Header) -> None:
    """Upgrade to version 13: drop the coarser counts of processing times, and add how many such times were counted in all."""
    for name in [name for name in columns if name.startswith("q.h.")]:
        del columns[name]
    if "q.t.processed" not in columns:
        pairs, counts = PackedCounts(columns["q.durations"].tobytes()).pairs()
        kind, bucket = pairs >> 8 & 0xFF, pairs & 0xFF
        counted = (kind % UNDIVIDED == DURATIONS.index("processing")) & (bucket != SUM)
        processed = np.zeros_like(columns["q.t.processing_ms"])
        np.add.at(processed, pairs[counted] >> 16, counts[counted])
        columns["q.t.processed"] = processed


def _to_version_15(columns: Columns, _: Header) -> None:
    """Upgrade to version 15: add how queues are known to be dead-letter queues. Those known so far stay such.

    The step from version 3 to 4 makes the queues' columns as they are today.
    """
    columns.setdefault("q.dead_letter_reported", columns["q.dead_letter"].copy())
    # What the attributes say is read again at the next report that differs.
    for name in ("dead_letter_apparent", "redrive_target", "attributed_live"):
        columns.setdefault(f"q.{name}", np.zeros_like(columns["q.dead_letter"]))


def _to_version_16(columns: Columns, header: Header) -> None:
    """Upgrade to version 16: convert what the broker reported of consumers from a list in the header to columns."""
    reported = {(queue, consumer): ConsumerState(*state) for queue, consumer, *state in header.pop("consumer_states")}
    columns |= ConsumerStates.of(reported).pack()


STEPS: Final[Mapping[int, Step]] = {
    2: Step(_count_failures),
    3: Step(_queues_as_columns),
    4: Step(_rename_columns),
    5: Step(),
    6: Step(_to_version_7),
    7: Step(_ids_in_head),
    8: Step(_ids_alone),
    9: Step(_to_version_10),
    10: Step(_to_version_11),
    11: Step(_to_version_12),
    12: Step(_to_version_13),
    13: Step(),
    14: Step(_to_version_15),
    15: Step(_to_version_16),
}
"""Version read -> the step to the next version. Version 6 has rows of another key: see `rows.F_PLACEHOLDER`."""


def upgrade_head(
    columns: Columns,
    header: Header,
    *,
    steps: Mapping[int, Step] = STEPS,
    to: int = FORMAT_VERSION,
    oldest: int = OLDEST_READABLE,
) -> None:
    """Upgrade an unpacked head to version `to`, in place. Raises `UnreadableBlob` for one this release cannot read."""
    version = header["version"]
    if not isinstance(version, int) or not oldest <= version <= to:
        readable = str(to) if oldest == to else f"{oldest} to {to}"
        raise UnreadableBlob(
            f"state of version {version}, but this release of queuewatch reads version {readable}: "
            "run the release that wrote it, or start with a new checkpoint folder"
        )
    for step in range(version, to):
        steps[step].head(columns, header)
    header["version"] = to


def upgrade_segment(columns: Columns, header: Header, *, steps: Mapping[int, Step] = STEPS, to: int = FORMAT_VERSION) -> None:
    """Upgrade the unpacked columns of a tombstone segment to version `to`, in place. `header` is the segment's own."""
    for step in range(int(header.get("version", 2)), to):
        steps[step].segment(columns)
