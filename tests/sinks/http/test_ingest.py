"""POST /api/v1/events: every format is accepted, and refusals say what to do."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from sinks.http.ingest import as_lines
from sources.collect import Destination
from sources.wire import decode_records, encode_arrow
from tests.sinks.http.conftest import StartService
from tests.sinks.http.ingesting import EVENTS, JSON_TYPE, NDJSON, NDJSON_TYPE, ids, post, refused, serve_ingest, spooled


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
    "body", [b"not json\n", b'{"v":1,"type":"sent"}\n', b"[" * 100_000 + b"\n"], ids=["text", "event", "deep"]
)
def test_a_body_in_which_nothing_can_be_read_is_refused_and_kept(start: StartService, spool: Path, body: bytes) -> None:
    """The sender gets an error, and the job counts the events and keeps them for inspection, as it does beside valid ones."""
    error = refused(post(serve_ingest(start, spool), body, NDJSON_TYPE), 400, "invalid_events")
    assert "quarantine" in error["fix"]
    assert spooled(spool) == [body]


def test_a_collector_passes_on_what_cannot_be_read_and_goes_on(start: StartService, spool: Path) -> None:
    """A message that is not telemetry must not block the telemetry behind it."""
    service = serve_ingest(start, spool)
    with Destination(f"{service.url}/api/v1/events", threading.Event()) as emit:
        for events in (EVENTS[:1], [{"unreadable": "{broken"}], EVENTS[1:]):
            emit(events)
        assert (emit.delivered, emit.unreadable) == (3, 1)
    decoded = decode_records(spooled(spool))
    assert (decoded.events.num_rows, [event.raw for event in decoded.invalid]) == (3, [b'{"unreadable":"{broken"}'])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", JSON_TYPE, 400, "empty"),
        (b"  \n", JSON_TYPE, 400, "empty"),
        (b"[]", JSON_TYPE, 400, "empty"),
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
    service = serve_ingest(start, spool, max_body_bytes=4_000, max_inflated_bytes=10_000)
    refused(post(service, body, headers), status, code)
    assert spooled(spool) == []


@pytest.mark.parametrize(
    ("body", "fix"),
    [
        (NDJSON, "compress the body, or leave out Content-Encoding"),
        (gzip.compress(NDJSON)[:-9], "send it again"),
        (gzip.compress(b"") * 100, "compress it as one"),
    ],
    ids=["plain", "cut off", "many members"],
)
def test_a_body_that_is_not_gzip_as_its_header_says_gets_a_fix_that_helps(
    start: StartService, spool: Path, body: bytes, fix: str
) -> None:
    """To send a plain body again would end the same way."""
    answer = post(serve_ingest(start, spool), body, NDJSON_TYPE | {"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["fix"]) == (400, fix)


def test_a_slash_at_the_end_of_the_path_makes_no_difference(start: StartService, spool: Path) -> None:
    """Events sent to either are read: there is no redirect, which curl would take for success."""
    answer = serve_ingest(start, spool).client.post("/api/v1/events/", content=NDJSON, headers=NDJSON_TYPE)
    assert (answer.status_code, len(spooled(spool))) == (202, 1)


@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, 'Bearer realm="queuewatch"'),
        ("Bearer", 'Bearer realm="queuewatch"'),
        ("Bearer wrong", 'Bearer realm="queuewatch", error="invalid_token"'),
        ("Basic s3cret", 'Bearer realm="queuewatch"'),
        ("Bearer s3cret-and-more", 'Bearer realm="queuewatch", error="invalid_token"'),
        ("Bearer schlüssel".encode(), 'Bearer realm="queuewatch", error="invalid_token"'),
        ("Bearer s3cret", None),
        ("bearer s3cret", None),
    ],
)
def test_the_token_is_required_if_one_is_configured(
    start: StartService, spool: Path, authorization: Any, challenge: str | None
) -> None:
    """Without the token the body is not processed, and the response does not contain the right token."""
    service = serve_ingest(start, spool, token="s3cret")
    headers = NDJSON_TYPE | ({"Authorization": authorization} if authorization else {})
    answer = post(service, NDJSON, headers)
    if challenge is None:
        assert answer.status_code == 202
    else:
        assert "http.ingest.token_file" in refused(answer, 401, "unauthorized")["fix"]
        assert answer.headers["www-authenticate"] == challenge
        assert "s3cret" not in answer.text
        assert spooled(spool) == []


def test_without_a_spool_folder_ingest_is_off(start: StartService) -> None:
    """The response says how to turn ingest on."""
    error = refused(start().client.post("/api/v1/events", content=NDJSON, headers=NDJSON_TYPE), 404, "ingest_off")
    assert "http.ingest.enabled" in error["fix"]
    assert start().client.get("/api/v1/events").status_code == 405


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b'[{"a":1},\n{"b":"x\\ny"}]', b'{"a":1}\n{"b":"x\\ny"}\n'),
        (b'[{"a":\n1e15,"b":"\xc3\xbc"}]', b'{"a": 1e15,"b":"\xc3\xbc"}\n'),
        (b'{\n "a": 1\n}', b'{  "a": 1 }\n'),
        (b'{"a":1}\r\n\n{"b":2}', b'{"a":1}\r\n\n{"b":2}'),
        (b'{"a":1}\nbroken', None),
        (b'{"a":1} \n{"b":1}', None),
        (b'[{"a":1}]\n[{"b":1}]', None),
        (b'[{"a":1},]', None),
        (b'[{"a":1},2]', None),
        (b'[{"a":"\n"}]', None),
        (b"[]", None),
    ],
)
def test_json_becomes_one_object_per_line(body: bytes, lines: bytes | None) -> None:
    """With one object per line, bodies of several senders can share a file. The text of a value stays as it was sent."""
    assert as_lines(body) == lines
