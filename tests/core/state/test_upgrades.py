"""This release reads states that earlier releases packed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sinks.queue_lines import labels_text
from sources.wire import decode_records
from streaming.core.columns import UnreadableBlob, pack_columns, unpack_columns
from streaming.core.events.packet import empty_packet
from streaming.core.events.route import route
from streaming.core.maintenance.reshard import reshard
from streaming.core.reporting.merge import merge
from streaming.core.reporting.shard_report import ShardReport
from streaming.core.settings import QueueName, Settings
from streaming.core.state.queues import TimeoutChange
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
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.metrics import samples
from streaming.judge.snapshot import NO_BUCKETS, Duration
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
        restore_queues(state, np.ones(len(state.queues), dtype=bool), Settings())
        reports.append(track(state, empty_packet(), state.now, Settings())[1])
    merged = merge(reports, Settings())
    published = json.loads((FOLDER / f"{name}.json").read_text())["metrics"]
    assert {queue for _, _, queue in merged.queues} == {"orders", "orders-dlq", "payments.fifo", "later"}
    for (system, scope, queue), summary in merged.queues.items():
        for total in ("sent", "received", "deleted", "dead_lettered", "dropped"):
            series = f'queuewatch_messages_{total}_total{{system="{system}",scope_id="{scope}",queue="{queue}"}}'
            assert summary.total(total) == published[series], series
    assert merged.events_total["accepted"] == published['queuewatch_events_total{result="accepted"}']
    assert merged.queues[QueueName("aws_sqs", "eu/1", "payments.fifo")].numbers["visible"] == 12


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_durations_counted_by_an_earlier_release_stay_in_the_classic_histograms(shards: int, tmp_path: Path) -> None:
    """Bucket by bucket as published, for any number of shards; the native histograms have what was counted since."""
    states = reshard(stored_states(unpacked("state-6", tmp_path)), shards, Settings())
    stored = json.loads((FOLDER / "state-6.json").read_text())["metrics"]
    published = {series: value for series, value in stored.items() if "_seconds" in series}
    queue = QueueName("aws_sqs", "eu/1", "payments.fifo")
    now = max(state.now for state in states) + 1_000

    def histograms(events: list[dict[str, Any]]) -> tuple[dict[str, float], Mapping[str, Duration]]:
        decoded = decode_records([json.dumps(one).encode() for one in events])
        packets = route(decoded.events, Counter(), [], shards, Settings())
        reports = []
        for i, packet in enumerate(packets):
            states[i], report = track(ShardState.unpack(states[i].pack()), packet, now, Settings())
            reports.append(report)
        _, snapshot, _ = judge(JudgeMemory.empty(), merge(reports, Settings()), now, Settings())
        series = {
            f"{one.name}{labels_text(one.labels)}": one.value
            for one in samples(snapshot, now)
            if one.name.removeprefix("queuewatch_").startswith(("wait_", "processing_", "sojourn_"))
        }
        return series, next(view.durations for view in snapshot.queues if view.name == queue)

    before, took = histograms([])
    assert before == published
    assert len(published) == 3 * 15
    assert [one.native for one in took.values()] == [NO_BUCKETS] * 3
    message = {"v": 1, "system": "aws_sqs", "scope": "eu/1", "queue": queue.queue, "message_id": "new"}
    after, took = histograms(
        [
            message | {"type": "sent", "at": now - 7_000},
            message | {"type": "received", "at": now - 4_000, "receive_count": 1},
            message | {"type": "deleted", "at": now},
        ]
    )
    changed = {series: after[series] - value for series, value in before.items() if after[series] != value}
    assert {name: (one.native.to_dict(), one.native_sum_s) for name, one in took.items()} == {
        "wait": ({7: 1}, 3.0),
        "processing": ({8: 1}, 4.0),
        "sojourn": ({12: 1}, 7.0),
    }
    assert sum(value for series, value in changed.items() if "_count" in series) == 3
    assert sum(value for series, value in changed.items() if "_sum" in series) == pytest.approx(14)


def test_a_timeout_that_changes_after_the_upgrade_leaves_earlier_receives_theirs(tmp_path: Path) -> None:
    """That of before is known from the attributes, though the state did not say since when it holds."""
    state = stored_states(unpacked("state-9", tmp_path))[0]
    number = state.queues.index[QueueName("aws_sqs", "eu/1", "payments.fifo")]
    before, now = state.queues[number].last_state_at, state.now + 1_000
    changed = {"v": 1, "type": "queue_state", "at": now, "system": "aws_sqs", "scope": "eu/1", "queue": "payments.fifo"}
    decoded = decode_records([json.dumps(changed | {"attributes": {"visibility_timeout_s": 900}}).encode()])
    state, _ = track(state, route(decoded.events, Counter(), [], 1, Settings())[0], now, Settings())
    assert state.queues[number].timeout == TimeoutChange(now, before, 30_000)


def test_the_reasons_of_losses_are_kept_by_the_upgrade(tmp_path: Path) -> None:
    """Version 10 had them as pairs in the header."""
    states = stored_states(unpacked("state-10", tmp_path))
    assert [reason for state in states for reason in state.loss_reasons.values()] == ["too large"] * 3


def test_the_reasons_of_losses_are_packed_in_their_order() -> None:
    """Any key, and a reason that was not given."""
    state = ShardState.empty()
    state.loss_reasons = {2**64 - 1: "too large", 5: "", 0: "too large", 7: "späť"}
    assert list(ShardState.unpack(state.pack()).loss_reasons.items()) == list(state.loss_reasons.items())


def test_dead_letter_queues_stay_known_after_the_upgrade(tmp_path: Path) -> None:
    """Version 14 did not say how they are known, so that nothing reported later speaks against them."""
    for state in stored_states(unpacked("state-14", tmp_path)):
        before = state.queues.column("dead_letter").copy()
        state.queues.column("redrive_target")[:] = True
        assert before.any()
        assert not len(state.queues.conclude_dead_letter_queues())
        assert (state.queues.column("dead_letter") == before).all()


def test_what_the_broker_reported_of_consumers_is_kept_by_the_upgrade(tmp_path: Path) -> None:
    """Version 15 had it as a list in the header; every shard knows it."""
    states = stored_states(unpacked("state-15", tmp_path))
    assert len(states) == 2
    for state in states:
        number = state.queues.index[QueueName("aws_sqs", "eu/1", "orders")]
        [(key, reported)] = state.consumer_states.items()
        assert key == (number, "worker-1")
        assert reported.attributes == {"prefetch": 10, "dispatched": 4, "connected": True}
        assert reported.at == reported.dispatched_at > 0


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
