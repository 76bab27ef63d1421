"""This release reads states that earlier releases packed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from streaming.core.columns import UnreadableBlob, pack_columns, unpack_columns
from streaming.core.events.packet import empty_packet
from streaming.core.reporting.merge import merge
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import QueueName, Settings
from streaming.core.state.state import Packed, ShardState
from streaming.core.state.tombstones import restore_queues
from streaming.core.state.upgrades import (
    FORMAT_VERSION,
    OLDEST_READABLE,
    STEPS,
    Columns,
    Header,
    Step,
    upgrade_head,
    upgrade_segment,
)
from streaming.core.track import track
from tests.streaming.checkpoints import FOLDER, NAMES, unpacked


def stored_states(checkpoint: Path) -> list[ShardState]:
    """Return the latest state of each shard of a stored checkpoint."""
    latest: dict[str, ShardState] = {}
    segments = {path.stem: path.read_bytes() for path in (checkpoint / "shards").glob("*.layer")}
    for path in (checkpoint / "shards").glob("*.state"):
        head = path.read_bytes()
        header = unpack_columns(head)[1]
        needed = header["segments"] if "segments" in header else header["frozen"]
        state = ShardState.unpack(Packed(head, {name: segments[name] for name, *_ in needed}))
        shard = path.name.split("-")[0]
        if shard not in latest or state.now > latest[shard].now:
            latest[shard] = state
    return list(latest.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_state_of_every_format_is_read_and_says_what_it_said(name: str, tmp_path: Path) -> None:
    """Totals per queue equal those its release published, compacted messages included; and it can be packed again."""
    states = stored_states(unpacked(name, tmp_path))
    for state in states:
        assert ShardState.unpack(state.pack()).messages == state.messages
    reports: list[ShardReport] = []
    for state in states:
        restore_queues(state, range(len(state.queues)), Settings())
        reports.append(track(state, empty_packet(), state.now, Settings())[1])
    merged = merge(reports, Settings())
    published = json.loads((FOLDER / f"{name}.json").read_text())["metrics"]
    assert {queue for _, _, queue in merged.queues} == {"orders", "orders-dlq", "payments.fifo", "later"}
    for (system, scope, queue), facts in merged.queues.items():
        for total in ("sent", "received", "deleted", "dead_lettered", "dropped"):
            series = f'queuewatch_messages_{total}_total{{system="{system}",scope_id="{scope}",queue="{queue}"}}'
            assert facts.total(total) == published[series], series
    assert merged.events_total["accepted"] == published['queuewatch_events_total{result="accepted"}']
    assert merged.queues[QueueName("aws_sqs", "eu/1", "payments.fifo")].numbers["visible"] == 12


def test_there_is_a_step_from_every_version_that_is_read() -> None:
    """A change that raises the version must add the step to it, and store a checkpoint of the previous version."""
    assert sorted(STEPS) == list(range(OLDEST_READABLE, FORMAT_VERSION))
    stored = {int(name.removeprefix("state-")) for name in NAMES}
    assert set(range(OLDEST_READABLE, FORMAT_VERSION)) <= stored | {FORMAT_VERSION}


def test_an_old_head_and_an_old_segment_go_through_every_step_in_between() -> None:
    """Each starts at its own version, in order."""

    def doubled(columns: Columns, header: Header) -> None:
        columns["x"] = columns["x"] * 2
        header["doubled"] = True

    def renamed(columns: Columns, _: Header) -> None:
        columns["y"] = columns.pop("x")

    def segment_doubled(columns: Columns) -> None:
        columns["x"] = columns["x"] * 2

    steps = {2: Step(doubled, segment_doubled), 3: Step(renamed)}
    for version, expected in ((2, [2, 4]), (3, [1, 2])):
        columns, header = unpack_columns(pack_columns({"x": np.array([1, 2])}, {"version": version}, compress=True))
        upgrade_head(columns, header, steps=steps, to=4)
        assert columns["y"].tolist() == expected
        assert header == {"version": 4} | ({"doubled": True} if version == 2 else {})
    for header, expected in (({}, [2]), ({"version": 2}, [2]), ({"version": 3}, [1])):
        segment = {"x": np.array([1])}
        upgrade_segment(segment, header, steps=steps, to=4)
        assert segment["x"].tolist() == expected


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, OLDEST_READABLE - 1, "2"])
def test_a_state_of_another_version_is_refused_with_what_to_do(version: object) -> None:
    """A newer version, and one that is no longer supported."""
    blob = pack_columns({}, {"version": version}, compress=True)
    with pytest.raises(UnreadableBlob, match=r"run the release that wrote it"):
        ShardState.unpack(Packed(blob, {}))
