"""When recorded events came: the newest time so far, and one that is years ahead does not decide for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.wire import decode_records
from streaming.core.events.ahead import AHEAD_MS
from streaming.replay.recording import MOST_STEPS, arrival_times, check_steps, read_recording

HOUR, DAY, LATENESS_MS = 3_600_000, 86_400_000, 600_000
T0 = 1_700_000_000_000
FAR = 70 * 365 * DAY

CASES = [
    ([], [], "nothing"),
    ([5], [5], "one event, whatever its time"),
    ([0, 10, 5, 20], [0, 10, 10, 20], "out of order"),
    ([0, HOUR, 5], [0, HOUR, HOUR], "late by more than the lateness"),
    ([0, 3 * DAY], [0, 3 * DAY], "a quiet of days at the end"),
    ([0, 3 * DAY, 3 * DAY + 5], [0, 3 * DAY, 3 * DAY + 5], "a quiet of days that goes on from there"),
    ([0, 30 * DAY, *range(30 * DAY, 30 * DAY + 9)], [0, *[30 * DAY] * 2, *range(30 * DAY + 1, 30 * DAY + 9)], "a month"),
    ([0, FAR, 5, 6], [0, 0, 5, 6], "one of 2096 among others"),
    ([FAR, 1, 5, 6], [5, 5, 5, 6], "one of 2096 that comes first"),
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
]


@pytest.mark.parametrize(("at", "came", "why"), CASES, ids=[case[2] for case in CASES])
def test_when_events_came(at: list[int], came: list[int], why: str) -> None:
    """In milliseconds after some time."""
    assert (arrival_times(np.array(at, dtype=np.int64) + T0, LATENESS_MS) - T0).tolist() == came, why


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
    recording = read_recording([one, other], decode_records, 600_000)
    check_steps(recording, 1_000, None)
    found = [(e["message_id"], e["at"] - T0, e[AHEAD_MS]) for e in recording.events.to_pylist()]
    assert found == [("a", 0, 0), ("b", 0, FAR), ("d", 5, 0), ("c", HOUR, 0)]
    assert (recording.takes_effect - T0).tolist() == [0, 0, 5, HOUR]
    assert recording.last_at == T0 + HOUR
    assert FAR // 1_000 > MOST_STEPS
