"""The implementation of `queuewatch replay`: files in, lines out, an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO

import pyarrow.compute as pc

from sinks.lines import metric_line, signal_line, to_json
from sinks.report.collect import Collected
from sinks.report.page import report_page
from sources.wire import decode_records
from streaming.core.settings import Settings
from streaming.judge.findings.signals import SignalChange
from streaming.judge.findings.words import duration_ms, plural
from streaming.judge.snapshot import Snapshot
from streaming.replay.content import name_of
from streaming.replay.errors import ReplayError
from streaming.replay.recording import Recording, Step, check_steps, read_recording
from streaming.replay.run import Engine, replay
from streaming.replay.times import parse_duration_ms, parse_time_ms

EXIT_OK, EXIT_UNUSABLE = 0, 2
FEWEST_LATE, LATE_SHARE = 20, 0.1
"""Fewer late events than this number, or this share of a file, are no reason to doubt the order of its lines."""
EXPECTED = 'each is a JSON object such as {"v": 1, "type": "sent", "at": EPOCH_MS, "system": …, "queue": …, "message_id": …}'


def run_replay(
    files: Sequence[Path],
    *,
    every: str,
    until: str | None,
    settings: Settings,
    engine: Engine,
    strict: bool,
    out: TextIO | None,
    err: TextIO,
    report: Path | None = None,
) -> int:
    """Replay `files`, write NDJSON to `out` and unreadable events to `err`, and return the process' exit code.

    `out` is None where standard output is closed. `report` is the file for the HTML report, if one is wanted.
    """
    try:
        if out is None:
            raise ReplayError("standard output is closed: send it to a file or a program")
        every_ms = _parsed("--every", parse_duration_ms, every)
        until_ms = None if until is None else _parsed("--until", parse_time_ms, until)
        # Report every unreadable line.
        decode = partial(decode_records, most_kept=sys.maxsize)
        recording = read_recording(files, decode, settings)
        check_steps(recording, every_ms, until_ms)
        _check_writable(report, files)
    except ReplayError as error:
        print(f"queuewatch replay: {error}", file=err)
        return EXIT_UNUSABLE
    _name_unreadable(recording, err)
    _say_if_nothing_is_replayed(recording, until_ms, err)
    if strict and recording.unreadable:
        print(f"queuewatch replay: --strict: {plural(len(recording.unreadable), 'event')} could not be read", file=err)
        return EXIT_UNUSABLE
    _name_late(recording, settings.lateness_ms, err)
    collected = Collected()

    def on_signal(change: SignalChange) -> None:
        _print(out, signal_line(change))
        if report is not None:
            collected.on_signal(change)

    def on_step(step: Step, snapshot: Snapshot) -> None:
        if report is not None:
            collected.on_snapshot(step.at, snapshot, shown=step.shown)

    try:
        replay(
            recording,
            settings,
            every_ms=every_ms,
            until=until_ms,
            engine=engine,
            on_signal=on_signal,
            on_metric=lambda at, sample: _print(out, metric_line(at, sample)),
            on_step=on_step,
        )
        _written(out.flush)
    except ReplayError as error:
        print(f"queuewatch replay: {error}", file=err)
        with suppress(OSError):
            out.close()  # Otherwise Python tries to write the rest when the process ends.
        return EXIT_UNUSABLE
    if report is not None:
        page = report_page(collected, recording.events, [name_of(file) for file in files], len(recording.unreadable))
        try:
            report.write_text(page, encoding="utf-8")
        except OSError as error:
            print(f"queuewatch replay: {_unwritable(report, error)}", file=err)
            return EXIT_UNUSABLE
    return EXIT_OK


def _parsed(option: str, parse: Callable[[str], int], text: str) -> int:
    """Parse the value of an option. Raises `ReplayError` that names the option."""
    try:
        return parse(text)
    except ValueError as error:
        raise ReplayError(f"{option}: {error}") from error


def _check_writable(report: Path | None, files: Sequence[Path]) -> None:
    """Raise `ReplayError` before the work starts if the report cannot be written, or would replace a recording."""
    if report is not None:
        try:
            existed = report.exists()
            is_recording = existed and any(report.samefile(file) for file in files if file.exists())
            if not is_recording:
                report.open("a").close()
            if not existed:
                report.resolve().unlink()  # so that a replay that fails leaves no empty page
        except OSError as error:
            raise ReplayError(_unwritable(report, error)) from error
        if is_recording:
            raise ReplayError(f"--report {report}: it is a recording to replay, and would be overwritten: give another file")


def _unwritable(report: Path, error: OSError) -> str:
    return f"--report {report}: {error.strerror or error}: give a writable file"


def _print(out: TextIO, line: dict[str, object]) -> None:
    _written(out.write, f"{to_json(line)}\n")


def _written(write: Callable[..., object], *text: str) -> None:
    """Call a method of standard output. Raises `ReplayError` where that cannot be written, as on a full disk."""
    try:
        write(*text)
    except BrokenPipeError:
        raise  # the reader of standard output has seen enough
    except OSError as error:
        raise ReplayError(f"standard output cannot be written: {error.strerror or error}") from error


def _name_late(recording: Recording, lateness_ms: int, err: TextIO) -> None:
    """Name the files of which a large part is late, as when they hold one queue or partition after the other."""
    for file, (late, total) in recording.late.items():
        if late >= FEWEST_LATE and late >= LATE_SHARE * total:
            print(
                f"queuewatch replay: {file}: {late:,} of {total:,} events count as late: each is more than "
                f"{duration_ms(lateness_ms)} older than one on a line before it. Lines are taken to be in the order in which the "
                "events arrived; if they are not, sort them by `at`, or give each part as a file of its own",
                file=err,
            )


def _name_unreadable(recording: Recording, err: TextIO) -> None:
    for bad in recording.unreadable:
        place = bad.file if bad.line is None else f"{bad.file}:{bad.line}"
        print(f"{place}: {bad.reason}: {bad.detail}", file=err)


def _say_if_nothing_is_replayed(recording: Recording, until_ms: int | None, err: TextIO) -> None:
    if not len(recording.events):
        why = "no event could be read" if recording.unreadable else "the recording holds no event"
        print(f"queuewatch replay: {why}: {EXPECTED}", file=err)
        return
    first_ms = pc.min(recording.events["at"]).as_py()
    if until_ms is not None and until_ms < first_ms:
        first, until = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") for ms in (first_ms, until_ms))
        print(f"queuewatch replay: --until {until} is before the first event, of {first}: nothing is replayed", file=err)
