"""POST /api/v1/events: events are durable before they are accepted, every resource is bounded, and refusals say what to do."""

from __future__ import annotations

import errno
import gzip
import json
import os
import queue
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sinks.http import HttpSettings, IngestSettings, Spool, StageUnavailableError
from sinks.http.ingest import as_lines
from sinks.http.staging import BodyKind
from sources.wire import Decoded, decode_records, encode_arrow
from tests.sinks.fakes import NOW_MS
from tests.sinks.http.conftest import Service, StartService
from tests.waiting import until

EVENTS: list[dict[str, Any]] = [
    {
        "v": 1,
        "type": "sent",
        "at": NOW_MS + i,
        "system": "aws_sqs",
        "queue": "orders",
        "message_id": f"m{i}",
    }
    for i in range(3)
]
NDJSON = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()
JSON_TYPE = {"Content-Type": "application/json"}
NDJSON_TYPE = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def serve_ingest(start: StartService, spool: Path, **changes: Any) -> Service:
    return start(None, HttpSettings(ingest=IngestSettings(Spool(spool), **changes)))


def spooled(spool: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(spool.iterdir()) if not path.name.startswith(".")]


def ids(values: list[bytes]) -> list[str]:
    return sorted(decode_records(values).events["message_id"].to_pylist())


def post(service: Service, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return service.client.post("/api/v1/events", content=body, headers=headers)


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert error["message"]
    assert error["fix"]
    return error


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (NDJSON, "application/x-ndjson"),
        (NDJSON, "application/json; charset=utf-8"),
        (json.dumps(EVENTS).encode(), "application/json"),
        (json.dumps(EVENTS, indent=2).encode(), "application/json"),
        (b"\xef\xbb\xbf" + json.dumps(EVENTS).encode(), "application/json"),
        (encode_arrow(EVENTS), "application/vnd.apache.arrow.stream"),
    ],
    ids=["ndjson", "ndjson as json", "array", "indented array", "array with BOM", "arrow"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_events_are_spooled_in_the_form_their_reader_expects(
    start: StartService, spool: Path, body: bytes, content_type: str, packed: bool
) -> None:
    """Every format, compressed or not, yields the same events in one finished file."""
    headers = {"Content-Type": content_type} | ({"Content-Encoding": "gzip"} if packed else {})
    answer = post(serve_ingest(start, spool), gzip.compress(body) if packed else body, headers)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 3, "invalid": 0})
    (path,) = spool.iterdir()
    assert path.suffix == (".arrow" if "arrow" in content_type else ".ndjson")
    assert ids([path.read_bytes()]) == ["m0", "m1", "m2"]


def test_one_bad_event_does_not_spoil_the_others(start: StartService, spool: Path) -> None:
    """The bad event is spooled with the others and reported to the sender; the job keeps it for inspection."""
    body = NDJSON + b'{"v":1,"type":"sent"}\nnot json\n'
    answer = post(serve_ingest(start, spool), body, NDJSON_TYPE)
    found = answer.json()
    assert (answer.status_code, found["accepted"], found["invalid"]) == (202, 3, 2)
    assert found["first_invalid"]["line"] == 4
    assert sum(found["reasons"].values()) == 2
    assert spooled(spool) == [body]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", JSON_TYPE, 400, "empty"),
        (b"  \n", JSON_TYPE, 400, "empty"),
        (b"[]", JSON_TYPE, 400, "empty"),
        (b"not json", JSON_TYPE, 400, "invalid_events"),
        (b'{"v":1,"type":"sent"}', JSON_TYPE, 400, "invalid_events"),
        (b"[" * 100_000, JSON_TYPE, 400, "invalid_events"),
        (NDJSON, {}, 415, "content_type"),
        (NDJSON, {"Content-Type": "text/plain"}, 415, "content_type"),
        (NDJSON, NDJSON_TYPE | {"Content-Encoding": "br"}, 415, "content_encoding"),
        (gzip.compress(NDJSON), NDJSON_TYPE, 415, "content_encoding"),
        (NDJSON, NDJSON_TYPE | {"Content-Encoding": "gzip"}, 400, "not_gzip"),
        (gzip.compress(NDJSON)[:-9], NDJSON_TYPE | {"Content-Encoding": "gzip"}, 400, "not_gzip"),
        (gzip.compress(b"") * 100, NDJSON_TYPE | {"Content-Encoding": "gzip"}, 400, "not_gzip"),
        (b"x" * 5_000, NDJSON_TYPE, 413, "too_large"),
        (gzip.compress(b" " * 20_000), NDJSON_TYPE | {"Content-Encoding": "gzip"}, 413, "too_large"),
    ],
)
def test_an_unacceptable_body_is_refused_and_nothing_is_spooled(
    start: StartService, spool: Path, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    """A refusal has a status, an error code for programs, and a sentence and a fix for people."""
    service = serve_ingest(start, spool, max_body_bytes=4_000 if len(body) < 90_000 else 10**6, max_inflated_bytes=10_000)
    refused(post(service, body, headers), status, code)
    assert spooled(spool) == []


def test_a_slash_at_the_end_of_the_path_makes_no_difference(start: StartService, spool: Path) -> None:
    """A redirect would have no body, and curl takes it for success."""
    answer = serve_ingest(start, spool).client.post("/api/v1/events/", content=NDJSON, headers=NDJSON_TYPE)
    assert (answer.status_code, len(spooled(spool))) == (202, 1)


def test_a_body_without_a_length_is_cut_off_at_the_limit(start: StartService, spool: Path) -> None:
    """A chunked body has no declared length, so the limit applies while it is read."""

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    service = serve_ingest(start, spool, max_body_bytes=4_000)
    answer = service.client.post("/api/v1/events", content=endless(), headers=NDJSON_TYPE)
    refused(answer, 413, "too_large")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Basic s3cret", 401),
        ("Bearer s3cret-and-more", 401),
        ("Bearer schlüssel".encode(), 401),
        ("Bearer s3cret", 202),
        ("bearer s3cret", 202),
    ],
)
def test_the_token_is_required_if_one_is_configured(start: StartService, spool: Path, authorization: Any, status: int) -> None:
    """Without the token the body is not processed, and the response does not contain the right token."""
    service = serve_ingest(start, spool, token="s3cret")
    headers = NDJSON_TYPE | ({"Authorization": authorization} if authorization else {})
    answer = post(service, NDJSON, headers)
    assert answer.status_code == status
    if status == 401:
        refused(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == 'Bearer realm="queuewatch"'
        assert "s3cret" not in answer.text
        assert spooled(spool) == []


def test_without_a_spool_folder_ingest_is_off(start: StartService) -> None:
    """The response says how to turn ingest on."""
    error = refused(start().client.post("/api/v1/events", content=NDJSON, headers=NDJSON_TYPE), 404, "ingest_off")
    assert "http.ingest.enabled" in error["fix"]
    assert start().client.get("/api/v1/events").status_code == 405


class Gate:
    """A stage that blocks every body until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def put(self, body: bytes, kind: BodyKind) -> None:
        assert body
        assert kind == "ndjson"
        self.entered.release()
        assert self.open.wait(20)


def test_too_many_concurrent_requests_must_retry(start: StartService) -> None:
    """The accepted requests are answered in the end, and the metrics count all of them."""
    gate = Gate()
    service = start(None, HttpSettings(ingest=IngestSettings(gate, max_concurrent=2)))
    with ThreadPoolExecutor(2) as senders:
        first = [senders.submit(post, service, NDJSON, NDJSON_TYPE) for _ in range(2)]
        for _ in first:
            assert gate.entered.acquire(timeout=20)
        answer = post(service, NDJSON, NDJSON_TYPE)
        refused(answer, 429, "busy")
        assert answer.headers["retry-after"] == "1"
        gate.open.set()
        assert [future.result().status_code for future in first] == [202, 202]
    metrics = service.client.get("/metrics").text
    assert 'queuewatch_ingest_requests_total{code="202"} 2' in metrics
    assert 'queuewatch_ingest_requests_total{code="429"} 1' in metrics
    assert 'queuewatch_ingest_events_total{result="accepted"} 6' in metrics


def test_a_body_with_too_many_events_is_refused_before_it_is_parsed(start: StartService, spool: Path) -> None:
    """The limit holds for every format and is exact, and one event written over many lines counts as one."""
    parsed: list[int] = []

    def decode(bodies: Sequence[bytes]) -> Decoded:
        parsed.extend(map(len, bodies))
        return decode_records(bodies)

    service = serve_ingest(start, spool, max_events=1_000, decode=decode)
    for body in (b"{}\n" * 350_000, b"[" + b"{}," * 350_000 + b"{}]", b"[" + b"[]," * 9_000 + b"[]]"):
        packed = gzip.compress(body)
        refused(post(service, packed, NDJSON_TYPE | {"Content-Encoding": "gzip"}), 413, "too_many_events")
        assert parsed == []
    line = json.dumps(EVENTS[0]).encode()
    refused(post(service, b"\n".join([line] * 1_001), NDJSON_TYPE), 413, "too_many_events")
    assert post(service, b"\n".join([line] * 1_000), NDJSON_TYPE).status_code == 202
    long = EVENTS[0] | {"type": "queue_state", "attributes": {f"a{i}": i for i in range(1_500)}}
    assert post(service, json.dumps(long, indent=1).encode(), JSON_TYPE).status_code == 202


def test_all_invalid_events_of_a_body_are_counted(start: StartService, spool: Path) -> None:
    """Invalid events are counted even beyond those that are described."""
    answer = post(serve_ingest(start, spool), NDJSON + b"{}\n" * 5_000, NDJSON_TYPE)
    assert (answer.status_code, answer.json()["invalid"]) == (202, 5_000)
    assert answer.json()["reasons"] == {"missing_field": 5_000}


def test_bytes_held_by_all_requests_are_bounded(start: StartService) -> None:
    """The limit is on decompressed bytes, not on the number of requests, and finished requests free theirs."""
    gate = Gate()
    service = start(None, HttpSettings(ingest=IngestSettings(gate, max_bytes_at_once=3_000_000)))
    large = gzip.compress(NDJSON + b" " * 2_000_000 + b"\n")
    headers = NDJSON_TYPE | {"Content-Encoding": "gzip"}
    with ThreadPoolExecutor(1) as senders:
        first = senders.submit(post, service, large, headers)
        assert gate.entered.acquire(timeout=20)
        answer = post(service, large, headers)
        refused(answer, 429, "busy")
        assert answer.headers["retry-after"] == "1"
        gate.open.set()
        assert post(service, NDJSON, NDJSON_TYPE).status_code == 202
        assert first.result().status_code == 202
    for _ in range(3):
        assert post(service, large, headers).status_code == 202


def test_a_sender_that_stalls_within_its_body_gets_408(start: StartService) -> None:
    """A stalled request is answered with 408 after `body_within_s`."""
    service = start(None, HttpSettings(ingest=IngestSettings(Gate(), max_concurrent=1, body_within_s=0.3)))
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in slow.recv(4_096)


def test_no_room_is_507_with_the_folder_and_the_remedy(start: StartService, spool: Path) -> None:
    """No half-written file is left."""
    service = start(None, HttpSettings(ingest=IngestSettings(Spool(spool, min_free_bytes=1 << 60))))
    answer = post(service, NDJSON, NDJSON_TYPE)
    error = refused(answer, 507, "no_room")
    assert str(spool) in error["message"]
    assert answer.headers["retry-after"] == "30"
    assert list(spool.iterdir()) == []


def test_a_full_spool_refuses_events(start: StartService, spool: Path) -> None:
    """The reader removes files, so a spool that reaches its limit means that it stopped; the error says to check the job."""
    service = start(None, HttpSettings(ingest=IngestSettings(Spool(spool, max_spooled_bytes=1))))
    assert post(service, NDJSON, NDJSON_TYPE).status_code == 202
    error = refused(post(service, NDJSON, NDJSON_TYPE), 507, "no_room")
    assert "check that the job runs" in error["message"]


def test_a_file_that_its_reader_removes_meanwhile_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job removes files while the waiting bytes are added up; events are accepted all the same."""
    spool = Spool(tmp_path, max_spooled_bytes=1)
    spool.put(NDJSON, "ndjson")
    scandir = os.scandir

    @contextmanager
    def overtaken(folder: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            os.unlink(entry.path)
        yield found

    monkeypatch.setattr(os, "scandir", overtaken)
    spool.put(NDJSON, "ndjson")
    monkeypatch.undo()
    assert len(spooled(tmp_path)) == 1


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(errno.ENOSPC, 507, "no_room"), (errno.EACCES, 503, "stage"), (errno.EIO, 503, "stage")],
)
def test_an_fsync_error_accepts_nothing(
    start: StartService, spool: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, code: str
) -> None:
    """The error comes at fsync, after the write appeared to succeed."""
    service = serve_ingest(start, spool)

    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    refused(post(service, NDJSON, NDJSON_TYPE), status, code)
    assert list(spool.iterdir()) == []


def test_a_missing_spool_folder_is_named(tmp_path: Path) -> None:
    """The error names the folder if it was deleted while the service ran."""
    spool = Spool(tmp_path / "spool")
    (tmp_path / "spool").rmdir()
    with pytest.raises(StageUnavailableError, match="spool"):
        spool.put(NDJSON, "ndjson")


class Senders:
    """Threads that put bodies into a spool; the first waits within its fsync until all have arrived."""

    def __init__(self, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spool = spool
        self._answers: queue.Queue[Exception | None] = queue.Queue()
        self._entered, self._go = threading.Event(), threading.Event()
        fsync = os.fsync

        def waiting(descriptor: int) -> None:
            self._entered.set()
            assert self._go.wait(20)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", waiting)

    def arrive(self, count: int) -> None:
        """Start the threads. All but the first form one batch, in which each body has a file of its own."""
        for i in range(count):
            # Daemons, so that a sender that hangs fails the test and not its end.
            threading.Thread(target=self._put, daemon=True).start()
            assert self._entered.wait(20)
            until(lambda i=i: len(self._spool._pending) == i, "the sender waits for its turn")  # type: ignore[misc]

    def answers(self, count: int) -> list[Exception | None]:
        """Let all threads go on; return their answers, None for an accepted body."""
        self._go.set()
        return [self._answers.get(timeout=20) for _ in range(count)]

    def _put(self) -> None:
        try:
            self._spool.put(encode_arrow(EVENTS), "arrow")
        except Exception as error:
            self._answers.put(error)
        else:
            self._answers.put(None)


def test_a_disk_that_refuses_even_the_removal_of_a_file_accepts_nothing_until_its_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sender of the batch gets an answer that its events were kept, and the service needs no restart afterwards."""
    folder = tmp_path / "spool"
    senders = Senders(Spool(folder), monkeypatch)
    senders.arrive(4)
    shutil.rmtree(folder)
    folder.touch()  # Every call in it fails now, as on a disk that has become read-only.
    assert [type(answer) for answer in senders.answers(4)] == [StageUnavailableError] * 4
    folder.unlink()
    folder.mkdir()
    senders.arrive(1)
    assert senders.answers(1) == [None]
    assert ids(spooled(folder)) == ["m0", "m1", "m2"]


def test_an_unforeseen_error_reaches_every_sender_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes for the others fails with the error itself; the others get the answer to send again."""
    senders = Senders(Spool(tmp_path), monkeypatch)
    senders.arrive(4)
    rename = os.rename
    renamed: list[Path] = []

    def failing(old: Path, new: Path) -> None:
        renamed.append(new)
        if len(renamed) == 2:  # the first file of the batch; that of the first sender was alone
            raise MemoryError
        rename(old, new)

    monkeypatch.setattr(os, "rename", failing)
    kinds = [type(answer) for answer in senders.answers(4)]
    assert sorted(kind.__name__ for kind in kinds) == ["MemoryError", "NoneType"] + ["StageUnavailableError"] * 2
    senders.arrive(1)
    assert senders.answers(1) == [None]


def test_a_body_is_on_disk_under_its_final_name_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync the file, rename it, fsync the folder: in any other order a power cut can lose acknowledged events."""
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def syncing(descriptor: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).suffix or 'folder'}")
        fsync(descriptor)

    def renaming(old: Path, new: Path) -> None:
        assert old.name.startswith(".")
        done.append(f"rename to {new.suffix}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    Spool(tmp_path).put(NDJSON, "ndjson")
    assert done == ["sync .part", "rename to .ndjson", "sync folder"]


def test_bodies_that_wait_for_the_disk_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty senders with 40 bodies make fewer than 15 files, and every line is in exactly one of them."""
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(0.02)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    spool = Spool(tmp_path)
    bodies = [json.dumps(EVENTS[0] | {"message_id": f"m{i}"}).encode() for i in range(40)]
    with ThreadPoolExecutor(20) as senders:
        list(senders.map(lambda body: spool.put(body, "ndjson"), bodies))
    assert ids(spooled(tmp_path)) == sorted(f"m{i}" for i in range(40))
    assert len(spooled(tmp_path)) < 15


def test_an_arrow_stream_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Arrow streams cannot be concatenated as lines can, and a file ends at the size limit."""
    spool = Spool(tmp_path, max_file_bytes=len(NDJSON) + 1)
    for kind, body in (("arrow", encode_arrow(EVENTS)), ("ndjson", NDJSON), ("ndjson", NDJSON)):
        spool.put(body, kind)  # type: ignore[arg-type]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".arrow", ".ndjson", ".ndjson"]


def test_files_left_by_a_crash_are_removed_but_not_those_of_a_running_process(tmp_path: Path) -> None:
    """Temporary files older than an hour are leftovers."""
    (tmp_path / ".old.ndjson.part").touch()
    os.utime(tmp_path / ".old.ndjson.part", (0, 0))
    (tmp_path / ".new.ndjson.part").touch()
    Spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".new.ndjson.part"]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{"a":1}', b'{"a":1}\n'),
        (b'[{"a":1},\n{"b":"x\\ny"}]', b'{"a":1}\n{"b":"x\\ny"}\n'),
        (b'{\n "a": 1\n}', b'{"a":1}\n'),
        (b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}'),
        (b"broken", b"broken"),
        (b'{"n":12345678901234567890123}', b'{"n":12345678901234567890123}\n'),
    ],
)
def test_json_becomes_one_value_per_line(body: bytes, lines: bytes) -> None:
    """With one value per line, bodies of several senders can share a file."""
    assert as_lines(body) == lines
