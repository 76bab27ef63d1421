"""Spark's progress reports are converted to the pipeline's terms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streaming.health.progress import Progress, progress_of


def kafka(start: dict[str, int] | None, end: dict[str, int], latest: dict[str, int], rows: int) -> dict[str, Any]:
    """Return a Kafka source's part of a report, with its offsets by partition as JSON strings."""
    return {
        "description": "KafkaV2[Subscribe[t]]",
        "startOffset": None if start is None else json.dumps({"t": start}),
        "endOffset": json.dumps({"t": end}),
        "latestOffset": json.dumps({"t": latest}),
        "numInputRows": rows,
        "metrics": {"avgOffsetsBehindLatest": "0.0", "maxOffsetsBehindLatest": "0"},
    }


FILES = {
    "description": "FileStreamSource[file:/in]",
    "startOffset": '{"logOffset":0}',
    "endOffset": '{"logOffset":1}',
    "latestOffset": None,
    "numInputRows": 3,
    "metrics": {"numFilesOutstanding": "7", "numBytesOutstanding": "100"},
}
TICKS = {"description": "RateStreamV2", "startOffset": "4", "endOffset": "5", "latestOffset": "5", "numInputRows": 1}


def report(*sources: dict[str, Any]) -> dict[str, Any]:
    """Return a report of batch 7."""
    return {"batchId": 7, "batchDuration": 1500, "durationMs": {"addBatch": 1200, "walCommit": 60}, "sources": [*sources]}


@pytest.mark.parametrize(
    ("source", "waiting"),
    [
        pytest.param(kafka({"0": 5}, {"0": 9}, {"0": 9}, 4), 0, id="all read"),
        pytest.param(kafka({"0": 5, "1": 0}, {"0": 9, "1": 2}, {"0": 20, "1": 2}, 6), 11, id="some wait"),
        pytest.param(kafka(None, {"0": 9}, {"0": 9}, 4), 0, id="the first batch: nothing is known of before"),
        pytest.param(kafka({"0": 5}, {"0": 9, "1": 3}, {"0": 9, "1": 3}, 4), 0, id="a partition was added"),
        pytest.param(FILES, 7, id="files wait"),
        pytest.param(TICKS, None, id="ticks do not count"),
    ],
)
def test_the_backlog_of_each_kind_of_source(source: dict[str, Any], waiting: int | None) -> None:
    """A Kafka source's backlog is computed from its offsets, because Spark does not report the number."""
    progress = progress_of(report(source, TICKS))
    assert progress.waiting == waiting


def test_the_backlogs_of_several_sources_add_up() -> None:
    """They are counted in records and in files."""
    assert progress_of(report(kafka({"0": 0}, {"0": 1}, {"0": 5}, 1), FILES)).waiting == 11


def test_durations_have_the_units_their_names_say() -> None:
    """Spark reports milliseconds; names that end in `_s` hold seconds."""
    progress = progress_of(report(TICKS))
    assert progress == Progress(7, 1.5, None, {"addBatch": 1200, "walCommit": 60})
