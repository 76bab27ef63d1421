"""Ingest bounds every resource that a sender could use up: bytes, events, requests at once, and time."""

from __future__ import annotations

import gzip
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.http import HttpSettings, IngestSettings
from sinks.http.budget import ByteBudget, Share
from sinks.http.ingest import _read
from sources.wire import Decoded, decode_records
from tests.coroutines import finished
from tests.sinks.http.conftest import StartService
from tests.sinks.http.ingesting import EVENTS, JSON_TYPE, NDJSON, NDJSON_TYPE, Gate, post, refused, serve_ingest


def test_a_body_without_a_length_is_cut_off_at_the_limit(start: StartService, spool: Path) -> None:
    """A chunked body has no declared length, so the limit applies while it is read."""

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    service = serve_ingest(start, spool, max_body_bytes=4_000)
    answer = service.client.post("/api/v1/events", content=endless(), headers=NDJSON_TYPE)
    refused(answer, 413, "too_large")


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


def test_invalid_events_are_counted_where_no_event_of_the_body_can_be_read(start: StartService, spool: Path) -> None:
    """A sender of nothing but invalid events, such as one after a wrong update, must show in the metrics."""
    service = serve_ingest(start, spool)
    assert refused(post(service, b"{}\n" * 3, NDJSON_TYPE), 400, "invalid_events")["invalid"] == 3
    assert 'queuewatch_ingest_events_total{result="invalid"} 3' in service.client.get("/metrics").text


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


def test_slow_senders_do_not_keep_out_others(start: StartService, spool: Path) -> None:
    """A body that is still being received takes no place among those that are processed."""
    service = serve_ingest(start, spool, max_concurrent=1)
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        head = b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nExpect: 100-continue\r\n"
        slow.sendall(head + b"Content-Length: %d\r\n\r\n" % len(NDJSON))
        assert b" 100 " in slow.recv(4_096)  # the service has begun to receive the body
        assert post(service, NDJSON, NDJSON_TYPE).status_code == 202
        slow.sendall(NDJSON)
        assert b" 202 " in slow.recv(4_096)


def test_a_sender_that_stalls_within_its_body_gets_408(start: StartService) -> None:
    """A stalled request is answered with 408 after `body_within_s`."""
    service = start(None, HttpSettings(ingest=IngestSettings(Gate(), max_concurrent=1, body_within_s=0.3)))
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(b"POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in slow.recv(4_096)


@pytest.mark.slow
def test_a_body_in_small_chunks_takes_no_more_memory_than_its_bytes() -> None:
    """As many Python objects as chunks would be twenty times what the budget of all bodies counts."""

    class Trickling:
        async def stream(self) -> AsyncIterator[bytes]:
            for _ in range(200_000):
                yield bytes([123, 125])

    settings: Any = SimpleNamespace(max_body_bytes=1 << 20, body_within_s=60)
    request: Any = Trickling()
    with Share(ByteBudget(1 << 20)) as held:
        tracemalloc.start()
        try:
            body = finished(_read(request, settings, held))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert body == b"{}" * 200_000
    assert peak < 4 * len(body)
