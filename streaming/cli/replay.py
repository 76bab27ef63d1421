"""`queuewatch replay`: runs recorded events through the live code, on event time."""

from __future__ import annotations

import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import OptionalConfigFile


class EngineName(StrEnum):
    """The engine that does the tracking."""

    LOCAL = "local"
    SPARK = "spark"


def replay(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of recorded events: NDJSON, JSON or Arrow IPC, plain or gzip; - reads standard input."),
    ],
    every: Annotated[
        str | None,
        typer.Option(help="Print metrics every 30s, 5m, … of event time; default: replay.every_s (60s)."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Stop at this time, before or after the last event: 2026-11-21T10:00:00Z or epoch milliseconds."),
    ] = None,
    config: OptionalConfigFile = None,
    engine: Annotated[EngineName | None, typer.Option(help="The tracking engine; both give the same lines.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 if an event cannot be read.")] = False,
    report: Annotated[Path | None, typer.Option(help="Also write a report for people: one self-contained HTML file.")] = None,
) -> None:
    """Replay recorded events; prints metrics at every step and each signal change as NDJSON on standard output."""
    from streaming.config import load_config, to_settings
    from streaming.replay.command import run_replay
    from streaming.replay.run import Engine, local_engine

    loaded = load_config(config)
    chosen = loaded.replay.engine if engine is None else engine.value
    run_steps: Engine = local_engine
    if chosen == "spark":
        from streaming.spark.replay_engine import SparkEngine

        run_steps = SparkEngine(loaded.spark, shards=loaded.replay.shards)
    code = run_replay(
        files,
        every=every if every is not None else f"{round(loaded.replay.every_s * 1000)}ms",
        until=until,
        settings=to_settings(loaded, now_is_event_time=True),
        engine=run_steps,
        strict=strict,
        out=sys.stdout,
        err=sys.stderr or io.StringIO(),  # None if it is closed
        report=report,
    )
    raise typer.Exit(code)
