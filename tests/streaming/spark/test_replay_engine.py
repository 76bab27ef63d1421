"""A replay on Spark writes the same lines as a replay in one process."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sources.wire.schema import WIRE_SCHEMA
from streaming.core.reporting.merge import Merged
from streaming.core.settings import Settings
from streaming.replay.command import run_replay
from streaming.replay.recording import Step
from streaming.replay.run import Engine, local_engine
from streaming.spark import replay_engine
from tests.streaming.spark.live import SHARDS
from tests.streaming.spark.packets import T0, event, ndjson


@pytest.fixture
def spark_engine(spark: SparkSession) -> Engine:
    """The engine on the tests' Spark session."""

    def run(steps: Iterable[Step], settings: Settings) -> Iterator[tuple[Step, Merged]]:
        return replay_engine.run_steps(spark, steps, settings, SHARDS)

    return run


def recording(folder: Path) -> Path:
    """Write a poison message that is dead-lettered, a stuck group, plain messages, queue settings, and invalid lines."""
    events = [
        event(
            "queue_state", at=T0, attributes={"kind": "standard", "visibility_timeout_s": 30, "dead_letter_queue": "orders-dlq"}
        ),
        event("queue_state", at=T0, queue="pay.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30}),
    ]
    for n in range(40):
        at = T0 + 1_000 * n
        events.append(event("sent", f"m{n}", at, sent_at=at))
        events.append(
            event("received", f"m{n}", at + 200, sent_at=at, receive_count=1, invisible_until=at + 30_200, consumer="c")
        )
        events.append(event("deleted", f"m{n}", at + 700))
        events.append(event("sent", f"p{n}", at, queue="pay.fifo", sent_at=at, group=f"g{n % 3}", sequence=str(10**19 + n)))
    for n in range(1, 5):
        at = T0 + 31_000 * n
        received: dict[str, Any] = {"sent_at": T0, "receive_count": n, "invisible_until": at + 30_000}
        events.append(event("received", "bad", at, **received))
        events.append(event("received", "p0", at, queue="pay.fifo", group="g0", sequence=str(10**19), **received))
    events.append(event("dead_lettered", "bad", T0 + 160_000, to_queue="orders-dlq"))
    events.append(event("sent", "newest", T0 + 601_000))
    # Late by a millisecond, and not.
    late = [event("sent", f"late{n}", T0 + 1_000 - n) for n in (1, 0)]
    path = folder / "recording.ndjson"
    lines = ndjson(*sorted(events, key=lambda e: e["at"]), *late).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:50], b'{"v": 1, "type": "no such type", "at": 1}\n', *lines[50:], b"not JSON\n"]))
    return path


def replayed(path: Path, engine: Engine, **options: str) -> tuple[list[str], str]:
    """Return the lines of the standard output, and the standard error."""
    out, err = io.StringIO(), io.StringIO()
    code = run_replay(
        [path],
        every=options.get("every", "20s"),
        until=options.get("until"),
        settings=Settings(now_is_event_time=True),
        engine=engine,
        strict=False,
        out=out,
        err=err,
    )
    assert code == 0, err.getvalue()
    return out.getvalue().splitlines(), err.getvalue()


def test_both_engines_write_the_same_lines(spark_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every metric and every signal agrees, across files of steps and across batches."""
    monkeypatch.setattr(replay_engine, "STEPS_PER_FILE", 70)
    path = recording(tmp_path)
    local, spark = replayed(path, local_engine), replayed(path, spark_engine)
    assert len(local[0]) > 500
    assert any('"PoisonMessage"' in line for line in local[0])
    assert any('"DeadLetterArrived"' in line for line in local[0])
    assert any('"result":"late"' in line.replace(" ", "") and '"value":1' in line.replace(" ", "") for line in local[0])
    assert any('"result": "invalid"' in line or '"result":"invalid"' in line for line in local[0])
    assert spark == local


def test_time_advances_after_the_last_event(spark_engine: Engine, tmp_path: Path) -> None:
    """Steps without events also reach every shard."""
    path = tmp_path / "one.ndjson"
    path.write_bytes(ndjson(event("sent", "a", T0, sent_at=T0)))
    options = {"every": "5m", "until": str(T0 + 3_600_000)}
    local, spark = replayed(path, local_engine, **options), replayed(path, spark_engine, **options)
    assert any('"queuewatch_oldest_message_age_seconds"' in line and '"value":3600' in line.replace(" ", "") for line in local[0])
    assert spark == local


def test_a_recording_without_events_writes_no_lines(spark_engine: Engine, tmp_path: Path) -> None:
    """No query is started."""
    path = tmp_path / "empty.ndjson"
    path.write_bytes(b"\n")
    assert replayed(path, spark_engine)[0] == replayed(path, local_engine)[0]


def test_a_reader_that_stops_early_leaves_no_query_running(spark: SparkSession) -> None:
    """`| head` ends a replay like this."""
    nothing = WIRE_SCHEMA.empty_table()
    steps = (Step(T0 + n, nothing, Counter(), [], shown=True) for n in range(3))
    results = replay_engine.run_steps(spark, steps, Settings(now_is_event_time=True), SHARDS)
    next(results)
    results.close()  # type: ignore[attr-defined] # a generator
    assert not spark.streams.active
