"""The command itself: input formats, unreadable input, steps, times, exit codes, and the order of lines."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.core.settings import Settings
from streaming.replay.command import run_replay
from streaming.replay.run import local_engine
from tests.contract.replaying import ev, ms, replayed, replayed_file

Event = dict[str, Any]
TWO = [ev("sent", 0, message_id="m"), ev("sent", 90, message_id="n")]


def ndjson(events: Sequence[Event | list[Event]]) -> bytes:
    return "".join(json.dumps(e) + "\n" for e in events).encode()


def arrow(events: list[Event]) -> bytes:
    table = pa.Table.from_pylist(events)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


FORMS: dict[str, Callable[[list[Event]], bytes]] = {
    "lines": ndjson,
    "lines with CRLF and a byte order mark": lambda events: b"\xef\xbb\xbf" + ndjson(events).replace(b"\n", b"\r\n"),
    "no newline at the end": lambda events: ndjson(events).rstrip(),
    "an array": lambda events: json.dumps(events).encode(),
    "an array written over lines": lambda events: json.dumps(events, indent=2).encode(),
    "an array on each line": lambda events: ndjson([[event] for event in events]),
    "an array on one line, an event on the next": lambda events: ndjson([[], [events[0]], events[1]]),
    "arrays on lines with CRLF and a byte order mark": lambda events: (
        b"\xef\xbb\xbf" + ndjson([events[:1], events[1:]]).replace(b"\n", b"\r\n")
    ),
    "an Arrow stream": arrow,
    "gzip": lambda events: gzip.compress(ndjson(events)),
    "gzip in two parts": lambda events: gzip.compress(ndjson(events[:1])) + gzip.compress(ndjson(events[1:])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_gives_the_same_lines(tmp_path: Path, form: str) -> None:
    """Detected by content, without a flag."""
    path = tmp_path / "events"
    path.write_bytes(FORMS[form](TWO))
    assert replayed_file([path]).lines == replayed(TWO, tmp_path).lines


def test_one_event_written_over_lines(tmp_path: Path) -> None:
    """A single object, pretty-printed."""
    path = tmp_path / "events"
    path.write_text(json.dumps(TWO[0], indent=2))
    assert replayed_file([path]).metric("messages_sent_total") == {0: 1}


@pytest.mark.simulation
def test_several_files_are_one_recording(tmp_path: Path) -> None:
    """In whatever order they are named."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, event in zip(paths, TWO, strict=True):
        path.write_bytes(ndjson([event]))
    both = replayed(TWO, tmp_path).lines
    assert replayed_file(paths).lines == both
    assert replayed_file(paths[::-1]).lines == both


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n"], ids=["empty", "a newline", "blanks"])
def test_an_empty_file_is_a_recording_of_nothing(tmp_path: Path, content: bytes) -> None:
    """It prints no line, and is no error, even when strict."""
    path = tmp_path / "empty"
    path.write_bytes(content)
    code, lines, hint = run(path, "--strict")
    assert (code, lines) == (0, "")
    assert hint.startswith("queuewatch replay: the recording holds no event: each is a JSON object")
    beside = tmp_path / "two"
    beside.write_bytes(ndjson(TWO))
    assert replayed_file([path, beside]).lines == replayed(TWO, tmp_path).lines


BAD_LINES = [
    ("nonsense", "not_json"),
    ('{"v": 1, "type": "sent", "at": 1', "not_json"),
    ("[1]", "not_an_object"),
    ("null", "not_an_object"),
    (json.dumps({**TWO[0], "v": 2}), "unsupported_version"),
    (json.dumps({**TWO[0], "type": "teleported"}), "unknown_type"),
    (json.dumps({**TWO[0], "message_id": "x" * 513}), "too_long"),
    (json.dumps({k: v for k, v in TWO[0].items() if k != "message_id"}), "missing_field"),
    (json.dumps({**TWO[0], "at": 1_700_000_000}), "out_of_range"),
    (json.dumps({**TWO[0], "receive_count": "3"}), "wrong_type"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[reason for _, reason in BAD_LINES])
def test_a_line_that_cannot_be_read_is_counted_and_named(tmp_path: Path, line: str, reason: str) -> None:
    """Each is reported with file, line and reason; the other lines are read; the exit code is 0."""
    path = tmp_path / "events"
    path.write_bytes(ndjson(TWO[:1]) + line.encode() + b"\n" + ndjson(TWO[1:]))
    lines = replayed_file([path])
    assert lines.errors.startswith(f"{path}:2: {reason}: ")
    assert lines.metric("events_total", result="invalid")[90] == 1
    assert lines.metric("events_total", result="accepted")[90] == 2
    assert lines.metric("events_invalid_total", reason=reason)[90] == 1


def test_bad_lines_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Whatever the kind of each."""
    path = tmp_path / "events"
    bad = [json.dumps({**TWO[0], "v": 3}), "x", json.dumps({**TWO[0], "queue": 7}), "y", "{}"]
    path.write_bytes(ndjson(TWO[:1]) + "\n".join(bad).encode())
    named = [error.split(":")[1] for error in replayed_file([path]).errors.splitlines()]
    assert named == ["2", "3", "4", "5", "6"]


def test_a_bad_event_in_an_array_is_named_by_its_line(tmp_path: Path) -> None:
    """Each line is the value of a record; the other events of its array are read."""
    path = tmp_path / "events"
    path.write_bytes(ndjson([TWO[:1], [{}, TWO[1]]]) + b"[{}\n")
    lines = replayed_file([path])
    assert [error.split(": ")[0] for error in lines.errors.splitlines()] == [f"{path}:2", f"{path}:3"]
    assert lines.metric("events_total", result="accepted")[90] == 2


def test_a_file_with_one_queue_after_the_other_is_named(tmp_path: Path) -> None:
    """Most of the second queue counts as late. Sorted by time, or in two files, nothing does, and nothing is said."""
    queues = [[ev("queue_state", 60 * n, queue, attributes={"visible": n}) for n in range(40)] for queue in ("a", "b")]
    paths = [tmp_path / f"{number}.ndjson" for number in range(4)]
    together = [event for queue in queues for event in queue]
    for path, events in zip(paths, [*queues, sorted(together, key=lambda event: event["at"]), together], strict=True):
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert replayed_file(paths[:2], until_s=60).errors == replayed_file([paths[2]], until_s=60).errors == ""
    (hint,) = replayed_file([paths[3]], until_s=60).errors.splitlines()
    assert hint.startswith(f"queuewatch replay: {paths[3]}: 29 of 80 events count as late: ")
    assert "sort them by `at`" in hint


def test_a_few_late_events_are_no_wrong_order(tmp_path: Path) -> None:
    """They are counted."""
    events = [ev("queue_state", 60 * n, attributes={"visible": n}) for n in range(300)]
    path = tmp_path / "events.ndjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in [*events, *events[:29]]))
    assert replayed_file([path], until_s=60).errors == ""


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("x\n\ny\n", ["1", "3"]),
        ('{"v": 1\n{"v": 1, \n', ["1", "2"]),
        ('{\n  "v": 1,\n  "type": \n}\n', [" not_json"]),
    ],
    ids=["no JSON", "cut off lines", "one broken value written over lines"],
)
def test_lines_of_a_file_without_an_event(tmp_path: Path, content: str, lines: list[str]) -> None:
    """Each line is reported, and one value over several lines is one."""
    path = tmp_path / "events"
    path.write_text(content)
    said = replayed_file([path])
    assert not said.signals(), "nothing is known of any clock or queue"
    *named, hint = said.errors.splitlines()
    assert [error.removeprefix(f"{path}:").split(":")[0] for error in named] == lines
    assert hint.startswith("queuewatch replay: no event could be read: each is a JSON object such as")


def test_an_end_before_the_first_event_is_named(tmp_path: Path) -> None:
    """A wrong year or time zone looks like a quiet queue."""
    path = tmp_path / "events.ndjson"
    path.write_text(json.dumps(ev("queue_state", 0, attributes={"visible": 1})) + "\n")
    said = replayed_file([path], until_s=-3600)
    assert not said.signals()
    assert said.errors == (
        "queuewatch replay: --until 2023-11-14T21:13:20+00:00 is before the first event, of 2023-11-14T22:13:20+00:00: nothing is "
        "replayed\n"
    )


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (PNG, "is binary and contains no event"),
        ("Gr\u00fc\u00dfe\n".encode("latin-1"), "is binary and contains no event"),
        (gzip.compress(PNG), "is binary and contains no event"),
        (gzip.compress(ndjson(TWO))[:-9], "damaged or truncated gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd -dc {path} | queuewatch replay -"),
        (b"BZh91AY", "bzip2 -dc {path} | queuewatch replay -"),
        (b"\xfd7zXZ\x00\x00", "xz -dc {path} | queuewatch replay -"),
        (b"PK\x03\x04\x00", "unzip -p {path} | queuewatch replay -"),
        (b"ARROW1\x00\x00", "write it as an Arrow IPC stream"),
    ],
    ids=["a picture", "another encoding", "a picture in gzip", "half a gzip", "zstd", "bzip2", "xz", "zip", "an Arrow file"],
)
def test_a_file_that_can_hold_no_event_is_refused_with_what_to_do(tmp_path: Path, content: bytes, says: str) -> None:
    """It is reported, with exit code 2: it is not a recording."""
    path = tmp_path / "events"
    path.write_bytes(content)
    code, out, errors = run(path)
    assert (code, out) == (2, "")
    assert errors.startswith("queuewatch replay: ")
    assert says.format(path=path) in errors
    assert str(path) in errors


def test_an_arrow_stream_without_an_event_says_why(tmp_path: Path) -> None:
    """It is a recording in a form that is read, so its reason is named like that of a line."""
    path = tmp_path / "events"
    table = pa.table({"type": ["sent"], "at": [True]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert replayed_file([path]).errors.startswith(f"{path}:1: wrong_type: at is a boolean; send an integer\n")
    path.write_bytes(path.read_bytes()[:99])
    assert replayed_file([path]).errors.startswith(f"{path}: not_arrow: not a whole Arrow IPC stream: ")


def test_a_broken_line_in_another_encoding_among_good_ones_is_a_line(tmp_path: Path) -> None:
    """Only a file without any event is refused."""
    path = tmp_path / "events"
    path.write_bytes(ndjson(TWO[:1]) + b"\xff\x00\n" + ndjson(TWO[1:]))
    assert replayed_file([path]).metric("events_total", result="invalid")[90] == 1


@pytest.mark.slow
def test_standard_input_is_a_file_called_minus(tmp_path: Path) -> None:
    """Plain or gzip; unreadable events are reported, too."""
    command = [sys.executable, "-m", "streaming.cli.main", "replay", "-"]
    path = tmp_path / "events"
    path.write_bytes(ndjson(TWO))
    beside = subprocess.run([*command[:-1], str(path)], capture_output=True, check=True).stdout
    for content in (ndjson(TWO), gzip.compress(ndjson(TWO))):
        assert subprocess.run(command, input=content, capture_output=True, check=True).stdout == beside
    done = subprocess.run(command, input=ndjson(TWO) + b"x\n", capture_output=True, check=False)
    assert done.stderr.decode().startswith("standard input:3: not_json: ")
    assert subprocess.run(command, input=PNG, capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize(("until_s", "at"), [(None, 0), (600, ms(600))])
def test_a_file_of_which_nothing_can_be_read_still_counts(tmp_path: Path, until_s: float | None, at: int) -> None:
    """No event gives a time, so it is reported at `--until`, or at 0."""
    path = tmp_path / "events"
    path.write_text("x\ny\n")
    lines = replayed_file([path], until_s=until_s)
    (invalid,) = [x for x in lines.lines if x.get("labels") == {"result": "invalid"}]
    assert (invalid["at"], invalid["value"]) == (at, 2)


@pytest.mark.simulation
def test_steps_are_multiples_of_every_after_the_first_event_and_the_end(tmp_path: Path) -> None:
    """Metrics at each of them and nowhere else."""
    events = [ev("sent", 7, message_id="m"), ev("sent", 141.5, message_id="n")]
    assert list(replayed(events, tmp_path).metric("messages_sent_total")) == [67, 127, 141.5]
    assert list(replayed(events, tmp_path, every="45s", until_s=97).metric("messages_sent_total")) == [52, 97]
    assert list(replayed(events, tmp_path, every="5m").metric("messages_sent_total")) == [141.5]
    assert replayed(events, tmp_path, until_s=100).metric("messages_sent_total") == {67: 1, 100: 1}


def test_time_goes_on_to_until(tmp_path: Path) -> None:
    """Windows end and ages grow although no event comes."""
    events = [ev("sent", 0, message_id="m"), ev("received", 1, message_id="m", receive_count=1)]
    lines = replayed(events, tmp_path, until_s=120)
    assert lines.metric("queue_messages", state="visible") == {60: 1, 120: 1}
    assert lines.metric("oldest_message_age_seconds", scope="visible") == {60: 60, 120: 120}


@pytest.mark.simulation
def test_lines_are_ordered_by_at_signals_before_metrics(tmp_path: Path) -> None:
    """And every line holds what the contract promises."""
    events = [ev("received", 20 * n, message_id="m", receive_count=n + 1, scope="eu") for n in range(9)]
    lines = replayed([*events, ev("dead_lettered", 180, message_id="m", to_queue="d", scope="eu")], tmp_path, every="20s").lines
    times = [(x["at"], x["kind"] == "metric") for x in lines]
    assert times == sorted(times)
    for line in lines:
        if line["kind"] == "metric":
            assert set(line) == {"at", "kind", "name", "labels", "value"}
            assert line["name"].startswith("queuewatch_")
            if "queue" in line["labels"]:
                assert line["labels"]["system"] == "aws_sqs"
                assert line["labels"]["scope_id"] == "eu"
                assert "m" not in line["labels"].values()
        else:
            assert {"at", "kind", "signal", "status", "severity", "system", "queue", "message_id", "evidence"} <= set(line)
            assert line["severity"] in ("critical", "warning", "info")
            assert line["since"] <= line["at"]
            assert all(isinstance(v, str | int | float) for v in line["evidence"].values())
    assert {x["signal"] for x in lines if x["kind"] == "signal"} >= {"PoisonMessage", "DeadLetterArrived"}


def test_a_change_is_dated_by_its_event_in_a_short_recording(tmp_path: Path) -> None:
    """To the millisecond, even if it lasted less than a second."""
    receives = [ev("received", 10.1 + 0.1 * n, message_id="m", receive_count=n + 1) for n in range(3)]
    lines = replayed([*receives, ev("deleted", 10.45, message_id="m")], tmp_path)
    assert lines.times("PoisonMessage", "firing") == [10.3]
    assert lines.times("PoisonMessage", "resolved") == [10.45]


def run(path: Path, *options: str) -> tuple[int, str, str]:
    """Run the command in this process and return exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    reported = dict(zip(options[::2], options[1::2], strict=False))
    code = run_replay(
        [path],
        every=reported.get("--every", "60s"),
        until=reported.get("--until"),
        settings=Settings(),
        engine=local_engine,
        strict="--strict" in options,
        out=out,
        err=err,
    )
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--every", "soon"), "--every: 'soon' is not a duration"),
        (("--every", "0s"), "--every: '0s' is too short"),
        (("--every", "99999999999999999999d"), "--every: '99999999999999999999d' is too long"),
        (("--every", "9" * 400), "is too long"),
        (("--until", "tomorrow"), "--until: 'tomorrow' is not a time"),
        (("--until", "1" * 400), "is not a time that an event can have"),
        (("--until", "0001-01-01T00:00:00+14:00"), "is not a time that an event can have: give one from 2001 to 2099"),
        (("--until", "9999-12-31T23:59:59-14:00"), "is not a time that an event can have"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: tuple[str, str], complaint: str) -> None:
    """With exit code 2 and nothing on standard output."""
    path = tmp_path / "events"
    path.write_bytes(ndjson(TWO))
    code, out, err = run(path, *options)
    assert (code, out) == (2, "")
    assert complaint in err


def test_an_event_of_a_clock_decades_ahead_does_not_drag_the_time_there(tmp_path: Path) -> None:
    """It takes effect on arrival and is counted as ahead; the replay ends with the events that are not."""
    path = tmp_path / "events"
    path.write_bytes(ndjson([*TWO, ev("sent", 2e9, message_id="future")]))
    code, out, _ = run(path)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert max(line["at"] for line in lines) == max(one["at"] for one in TWO)
    counted = {line["labels"]["result"]: line["value"] for line in lines if line.get("name") == "queuewatch_events_total"}
    assert (counted["accepted"], counted["ahead"]) == (len(TWO), 1)


def test_a_message_sent_by_a_clock_ahead_has_an_age(tmp_path: Path) -> None:
    """It counts from the first event about it; the sender's clock is a day ahead."""
    lines = replayed([ev("received", 0, message_id="m", sent_at=ms(86_400), invisible_until=ms(30))], tmp_path, until_s=120)
    assert lines.metric("oldest_message_age_seconds", scope="all") == {60: 60, 120: 120}
    assert lines.metric("events_total", result="ahead") == {60: 1, 120: 1}


def test_an_event_of_a_clock_years_behind_on_the_first_line_does_not_hold_the_time_there(tmp_path: Path) -> None:
    """It is late, and changes nothing else; the replay begins with the events that are not."""
    path = tmp_path / "events"
    path.write_bytes(ndjson([ev("sent", -730 * 86_400, message_id="past"), *TWO]))
    code, out, _ = run(path)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert min(line["at"] for line in lines) >= min(one["at"] for one in TWO)
    counted = {line["labels"]["result"]: line["value"] for line in lines if line.get("name") == "queuewatch_events_total"}
    assert (counted["accepted"], counted["late"], counted["ahead"]) == (len(TWO), 1, 0)


@pytest.mark.simulation
def test_a_recording_of_too_many_steps_is_refused(tmp_path: Path) -> None:
    """It names the remedy, and the remedy works."""
    path = tmp_path / "events"
    path.write_bytes(ndjson([*TWO, ev("sent", 300 * 86_400, message_id="much later")]))
    code, out, err = run(path, "--every", "1s")
    assert (code, out) == (2, "")
    assert "spans 300 days" in err
    assert replayed_file([path], until_s=90).lines == replayed(TWO, tmp_path).lines


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a process."""
    return subprocess.run(
        [sys.executable, "-m", "streaming.cli.main", "replay", *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    """0 with bad lines, 2 with them when strict, 2 when a file cannot be opened: each names file, line and reason."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(ndjson(TWO) + b"nonsense\n")
    lenient = command(str(path), "--every", "30s")
    assert lenient.returncode == 0
    assert f"{path}:3: not_json: " in lenient.stderr
    assert json.loads(lenient.stdout.splitlines()[0])["at"] == ms(30)
    strict = command(str(path), "--strict")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert f"{path}:3: not_json: " in strict.stderr
    assert strict.stderr.splitlines()[-1] == "queuewatch replay: --strict: 1 event could not be read"
    missing = command(str(path), str(tmp_path / "none"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert str(tmp_path / "none") in missing.stderr


def test_a_failed_replay_leaves_no_report(tmp_path: Path) -> None:
    """An empty page would pass for a report in which nothing happened. An earlier page stays as it was."""
    path, report = tmp_path / "events.ndjson", tmp_path / "report.html"
    path.write_bytes(b"no event\n")
    options: Any = {"every": "60s", "until": None, "settings": Settings(), "engine": local_engine, "strict": True}
    assert run_replay([path], out=io.StringIO(), err=io.StringIO(), report=report, **options) == 2
    assert not report.exists()
    report.write_text("of yesterday")
    assert run_replay([path], out=io.StringIO(), err=io.StringIO(), report=report, **options) == 2
    assert report.read_text() == "of yesterday"


def test_a_report_does_not_replace_the_recording(tmp_path: Path) -> None:
    """Under any of its names."""
    path, link = tmp_path / "events.ndjson", tmp_path / "report.html"
    path.write_bytes(ndjson(TWO))
    link.symlink_to(path)
    for report in (path, link):
        err = io.StringIO()
        options: Any = {"every": "60s", "until": None, "settings": Settings(), "engine": local_engine, "strict": False}
        assert run_replay([path], out=io.StringIO(), err=err, report=report, **options) == 2
        assert f"--report {report}: it is a recording to replay" in err.getvalue()
    assert path.read_bytes() == ndjson(TWO)


class Full(io.StringIO):
    """Standard output on a full disk; with `buffered`, that shows when its buffer is written."""

    def __init__(self, *, buffered: bool) -> None:
        super().__init__()
        self._buffered = buffered

    def write(self, text: str) -> int:
        """Take the text, or not."""
        if self._buffered:
            return len(text)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        """Write the buffer."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        (Full(buffered=False), "standard output cannot be written: No space left on device"),
        (Full(buffered=True), "standard output cannot be written: No space left on device"),
        (None, "standard output is closed: send it to a file or a program"),
    ],
)
def test_a_standard_output_that_cannot_be_written_is_named(tmp_path: Path, out: io.StringIO | None, problem: str) -> None:
    """With exit code 2, like a file."""
    path, err = tmp_path / "events", io.StringIO()
    path.write_bytes(ndjson(TWO))
    options: Any = {"every": "60s", "until": None, "settings": Settings(), "engine": local_engine, "strict": False}
    assert run_replay([path], out=out, err=err, **options) == 2
    assert err.getvalue() == f"queuewatch replay: {problem}\n"


def test_a_standard_input_that_is_closed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no stream for it then."""
    monkeypatch.setattr(sys, "stdin", None)
    code, out, err = run(Path("-"))
    assert (code, out) == (2, "")
    assert err == "queuewatch replay: standard input: it is closed: give a file of recorded events\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "problem"),
    [
        ("<&-", "standard input: it is closed"),
        (">&-", "standard output is closed"),
        (">/dev/full", "standard output cannot be written"),
    ],
)
def test_standard_streams_of_the_process_that_cannot_be_used_are_named(tmp_path: Path, streams: str, problem: str) -> None:
    """In one line, also when Python ends and would write what is left."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(ndjson(TWO))
    file = "-" if streams.startswith("<") else path
    words = f"{sys.executable} -m streaming.cli.main replay {file} {streams}"
    done = subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"queuewatch replay: {problem}")


@pytest.mark.slow
def test_a_report_leaves_the_lines_as_they_are_and_is_refused_before_the_work(tmp_path: Path) -> None:
    """The page is written beside the lines; an unwritable path is reported before anything is printed."""
    path, report = tmp_path / "events.ndjson", tmp_path / "out.html"
    path.write_bytes(ndjson(TWO))
    plain, with_report = command(str(path)), command(str(path), "--report", str(report))
    assert (with_report.returncode, with_report.stdout) == (0, plain.stdout)
    assert report.read_text().startswith("<!doctype html>")
    nowhere = command(str(path), "--report", str(tmp_path / "none" / "out.html"))
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert f"--report {tmp_path / 'none' / 'out.html'}: No such file or directory" in nowhere.stderr


@pytest.mark.simulation
@pytest.mark.parametrize("every", ["60s", "2h", "1d"])
def test_a_signal_does_not_depend_on_how_often_metrics_are_shown(tmp_path: Path, every: str) -> None:
    """With a visibility timeout of ten minutes, a message is held too long after 51, and was deleted before two hours."""
    about = {"message_id": "m"}
    events = [
        ev("queue_state", 0, attributes={"visibility_timeout_s": 600}),
        ev("sent", 0, **about),
        ev("received", 0, receive_count=1, invisible_until=ms(7_200), **about),
        ev("deleted", 6_000, **about),
    ]
    lines = replayed(events, tmp_path, every=every, until_s=172_800)
    assert lines.times("MessageHeldTooLong", "firing") == pytest.approx([3_000], abs=60)
    assert lines.times("MessageHeldTooLong", "resolved") == [6_000]
