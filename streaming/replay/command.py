"""What `queuewatch replay` does: files in, lines out, an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from sinks.lines import metric_line, signal_line, to_json
from sources.wire import decode_records
from streaming.core.settings import Settings
from streaming.replay.errors import ReplayError
from streaming.replay.recording import Recording, check_steps, read_recording
from streaming.replay.run import Engine, replay
from streaming.replay.times import parse_duration_ms, parse_time_ms

EXIT_OK, EXIT_UNUSABLE = 0, 2
EXPECTED = 'each is a JSON object such as {"v": 1, "type": "sent", "at": EPOCH_MS, "system": …, "queue": …, "message_id": …}'


def run_replay(
    files: Sequence[Path],
    *,
    every: str,
    until: str | None,
    settings: Settings,
    engine: Engine,
    strict: bool,
    out: TextIO,
    err: TextIO,
) -> int:
    """Replay `files` with NDJSON on `out` and what could not be read named on `err`. Returns the process' exit code."""
    try:
        every_ms = parse_duration_ms(every)
        until_ms = None if until is None else parse_time_ms(until)
    except ValueError as error:
        option = "--every" if until is None or "duration" in str(error) or "no time" in str(error) else "--until"
        print(f"queuewatch replay: {option}: {error}", file=err)
        return EXIT_UNUSABLE
    try:
        # Every line that cannot be read is named.
        decode = partial(decode_records, most_kept=sys.maxsize)
        recording = read_recording(files, decode, settings.lateness_ms)
        check_steps(recording, every_ms, until_ms)
    except ReplayError as error:
        print(f"queuewatch replay: {error}", file=err)
        return EXIT_UNUSABLE
    _name_unreadable(recording, err)
    if strict and recording.unreadable:
        print(f"queuewatch replay: --strict: {len(recording.unreadable)} events could not be read", file=err)
        return EXIT_UNUSABLE
    replay(
        recording,
        settings,
        every_ms=every_ms,
        until=until_ms,
        engine=engine,
        on_signal=lambda change: _print(out, signal_line(change)),
        on_metric=lambda at, sample: _print(out, metric_line(at, sample)),
    )
    return EXIT_OK


def _print(out: TextIO, line: dict[str, object]) -> None:
    out.write(to_json(line))
    out.write("\n")


def _name_unreadable(recording: Recording, err: TextIO) -> None:
    for bad in recording.unreadable:
        place = bad.file if bad.line is None else f"{bad.file}:{bad.line}"
        print(f"{place}: {bad.reason}: {bad.detail}", file=err)
    if recording.unreadable and not len(recording.events):
        print(f"queuewatch replay: no event could be read: {EXPECTED}", file=err)
