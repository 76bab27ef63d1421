"""When recorded events came: the newest time so far, and one that is years ahead or behind does not decide for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.wire import decode_records
from streaming.core.events.ahead import AHEAD_MS
from streaming.core.settings import QueueName, Settings
from streaming.replay.recording import MOST_STEPS, arrival_times, check_steps, read_recording

HOUR, DAY, LATENESS_MS = 3_600_000, 86_400_000, 600_000
T0 = 1_700_000_000_000
FAR = 70 * 365 * DAY
OLD = -730 * DAY
HOURLY = range(0, 40 * HOUR, HOUR)
STALE_EVERY_TENTH = [t - 400 * DAY if t % 10 == 0 else t for t in range(1, 150)]

CASES = [
    ([], [], "nothing"),
    ([5], [5], "one event, whatever its time"),
    ([0, 10, 5, 20], [0, 10, 10, 20], "out of order"),
    ([0, HOUR, 5], [0, HOUR, HOUR], "late by more than the lateness"),
    ([0, 3 * DAY], [0, 3 * DAY], "a quiet of days at the end"),
    ([0, 3 * DAY, 3 * DAY + 5], [0, 3 * DAY, 3 * DAY + 5], "a quiet of days that goes on from there"),
    ([0, 30 * DAY, *range(30 * DAY, 30 * DAY + 9)], [0, *[30 * DAY] * 2, *range(30 * DAY + 1, 30 * DAY + 9)], "a month"),
    ([0, FAR, 5, 6], [0, 0, 5, 6], "one of 2096 among others"),
    ([FAR, 1, 5, 6], [1, 1, 5, 6], "one of 2096 that comes first"),
    ([FAR, *HOURLY], [0, *HOURLY], "one of 2096 that comes first, and an event an hour"),
    ([0, 5, FAR], [0, 5, 5], "one of 2096 that comes last"),
    ([0, FAR, 5, FAR + 1, 6, FAR + 2, 7, 8], [0, 0, 5, 5, 6, 6, 7, 8], "one sender of several is always ahead"),
    ([0, 2 * DAY, 1, 2, 3], [0, 0, 1, 2, 3], "two days ahead, and nobody else"),
    ([0, HOUR, *range(1, 9)], [0, 0, *range(1, 9)], "an hour ahead, and nobody else"),
    ([*range(9), HOUR, 1, 2, 3, 4], [*range(9), *[HOUR] * 5], "a quiet hour, and a few late events at the end"),
    (
        [*range(9), HOUR, *range(5), *range(HOUR, HOUR + 9)],
        [*range(9), *[HOUR] * 6, *range(HOUR, HOUR + 9)],
        "late in the middle",
    ),
    ([0, 599_000, *range(1, 30)], [0, *[599_000] * 30], "the order that the lateness allows"),
    (
        [*range(0, 6_000_000, 60_000), HOUR * 4, *range(6_000_000, 12_000_000, 60_000)],
        [*range(0, 6_000_000, 60_000), 5_940_000, *range(6_000_000, 12_000_000, 60_000)],
        "one event a minute, and one two hours ahead",
    ),
    ([OLD, *range(200)], [0, *range(200)], "a stale clock on the first line"),
    ([OLD, *range(3)], [0, *range(3)], "a stale clock on the first of four lines"),
    ([OLD, OLD + 5, *range(200)], [0, 0, *range(200)], "a stale clock on the first two lines"),
    ([-T0 + 5, *HOURLY], [0, *HOURLY], "a clock of 1970 on the first line, and an event an hour"),
    ([0, 1, OLD, *range(2, 200)], [0, 1, 1, *range(2, 200)], "a stale clock on the third line"),
    ([*range(-9, 1), OLD], [*range(-9, 1), 0], "a stale clock on the last line"),
    (STALE_EVERY_TENTH, np.maximum.accumulate(STALE_EVERY_TENTH), "a stale clock on every tenth line"),
    (
        [OLD, *STALE_EVERY_TENTH],
        [1, *np.maximum.accumulate(STALE_EVERY_TENTH)],
        "a stale clock on every tenth line and the first",
    ),
    (
        [*range(OLD, OLD + 12), *range(200)],
        [*range(OLD, OLD + 12), *range(200)],
        "a dozen events of two years ago, and then two hundred",
    ),
    ([*range(OLD, OLD + 200), *range(200)], [*range(OLD, OLD + 200), *range(200)], "a gap of two years in the middle"),
    ([*range(OLD, OLD + 30), *range(21)], [*range(OLD, OLD + 30), *range(21)], "a gap of two years before the last 21 lines"),
    ([*range(40), FAR, FAR + 1, FAR + 2], [*range(40), 39, 39, 39], "the last three lines are of 2096"),
    (
        [*range(OLD, OLD + 30), *STALE_EVERY_TENTH],
        [*range(OLD, OLD + 30), *np.maximum.accumulate(STALE_EVERY_TENTH)],
        "a gap of two years, and then a stale clock on every tenth line",
    ),
    ([*range(40), FAR, *range(40, 80)], [*range(40), 39, *range(40, 80)], "one of 2096 in the middle of many"),
    ([*range(40), FAR, FAR + 1, 40], [*range(40), 39, 39, 40], "two of 2096 before the last line"),
]


@pytest.mark.parametrize(("at", "came", "why"), CASES, ids=[case[2] for case in CASES])
def test_when_events_came(at: Sequence[int], came: Sequence[int], why: str) -> None:
    """In milliseconds after some time."""
    assert (arrival_times(np.array(at, dtype=np.int64) + T0, LATENESS_MS) - T0).tolist() == list(came), why


@pytest.mark.simulation
@given(
    gaps_ms=st.lists(st.integers(0, 60_000), min_size=20, max_size=60),
    ahead_ms=st.integers(LATENESS_MS + 60_000, DAY),
    data=st.data(),
)
def test_one_event_ahead_moves_the_time_of_no_other(gaps_ms: list[int], ahead_ms: int, data: st.DataObject) -> None:
    """Wherever it is, but in the last few events, where it may be the end of a quiet time."""
    at = T0 + np.cumsum(np.array(gaps_ms, dtype=np.int64))
    place = data.draw(st.integers(1, len(at) - 12))
    ahead = max(int(at[place]) + ahead_ms, int(at[place + 11]) + LATENESS_MS + 1)
    came = arrival_times(np.insert(at, place, ahead), LATENESS_MS)
    assert np.delete(came, place).tolist() == at.tolist()


def sent(at: int, name: str) -> str:
    """A line of a recording."""
    return json.dumps({"type": "sent", "at": T0 + at, "system": "aws_sqs", "queue": "orders", "message_id": name})


def test_an_event_of_2096_makes_no_recording_of_seventy_years(tmp_path: Path) -> None:
    """It takes effect when it came, and is marked; a file without one beside it is not."""
    one, other = tmp_path / "one.ndjson", tmp_path / "other.ndjson"
    one.write_text("\n".join([sent(0, "a"), sent(FAR, "b"), sent(HOUR, "c")]))
    other.write_text(sent(5, "d"))
    recording = read_recording([one, other], decode_records, Settings())
    check_steps(recording, 1_000, None)
    found = [(e["message_id"], e["at"] - T0, e[AHEAD_MS]) for e in recording.events.to_pylist()]
    assert found == [("a", 0, 0), ("b", 0, FAR), ("d", 5, 0), ("c", HOUR, 0)]
    assert (recording.takes_effect - T0).tolist() == [0, 0, 5, HOUR]
    assert recording.last_at == T0 + HOUR
    assert FAR // 1_000 > MOST_STEPS


@pytest.mark.parametrize(
    ("sent_at", "kept", "ahead_ms"),
    [(5_000 + 300_000, 5_000 + 300_000, 0), (5_000 + 300_001, 5_000, 300_001), (FAR, 5_000, FAR - 5_000)],
    ids=["within the allowance", "beyond it", "2096"],
)
def test_a_send_time_after_the_arrival_is_brought_back(tmp_path: Path, sent_at: int, kept: int, ahead_ms: int) -> None:
    """As in a live run: the clock of a producer that is ahead would give its messages no age until then."""
    path = tmp_path / "events.ndjson"
    ahead = json.loads(sent(5_000, "b")) | {"type": "received", "sent_at": T0 + sent_at}
    path.write_text("\n".join([sent(0, "a"), json.dumps(ahead), sent(2 * HOUR, "c")]))
    _, found, _ = read_recording([path], decode_records, Settings()).events.to_pylist()
    assert (found["at"] - T0, found["sent_at"] - T0, found.get(AHEAD_MS, 0)) == (5_000, kept, ahead_ms)


@pytest.mark.parametrize(
    ("fields", "ordered"),
    [
        ({"type": "queue_state", "attributes": {"kind": "fifo"}}, True),
        ({"type": "queue_state", "attributes": {"kind": "fifo", "tags": {"kind": "standard"}}}, True),
        ({"type": "queue_state", "attributes": {"kind": "standard", "tags": {"kind": "fifo"}}}, False),
        ({"type": "consumer_state", "consumer": "c", "attributes": {"kind": "fifo"}}, False),
        ({"type": "sent", "message_id": "m", "group": "g", "ordered": True}, True),
    ],
    ids=["kind", "another kind as a tag", "only a tag", "of a consumer", "an event"],
)
def test_which_queues_of_a_recording_keep_order(tmp_path: Path, fields: dict[str, object], ordered: bool) -> None:
    """Those of kind fifo, as the attribute itself says, and those of which an event says so."""
    path = tmp_path / "events.ndjson"
    path.write_text(json.dumps({"at": T0, "system": "aws_sqs", "queue": "orders", **fields}))
    found = read_recording([path], decode_records, Settings()).ordered_queues
    assert found == ({QueueName("aws_sqs", "", "orders")} if ordered else set())
