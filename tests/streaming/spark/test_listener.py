"""Every progress report of Spark reaches the pipeline; one that cannot be parsed does not stop it."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from streaming.health.progress import Progress
from streaming.spark.listener import ProgressListener
from tests.streaming.health.test_progress import TICKS, report
from tests.streaming.spark.live import Live


def test_a_report_that_cannot_be_parsed_stops_nothing() -> None:
    """Spark would only write the error to its own log."""
    heard: list[Progress] = []
    listener = ProgressListener(heard.append)
    for text in ("not JSON", "{}", json.dumps(report(TICKS))):
        listener.on_progress_json(text)
    assert [progress.batch_id for progress in heard] == [7]


def test_spark_reports_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Reports arrive in order, with durations; ticks alone cause no backlog."""
    heard: list[Progress] = []
    listener = ProgressListener(heard.append)
    spark.streams.addListener(listener)
    live = Live(spark, tmp_path)
    try:
        with live.running() as query:
            live.wait(lambda _: len(heard) >= 2, query)
    finally:
        spark.streams.removeListener(listener)
    assert [progress.batch_id for progress in heard] == list(range(len(heard)))
    assert heard[0].duration_s > 0
    assert "addBatch" in heard[0].durations_ms
