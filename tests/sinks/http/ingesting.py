"""Helpers for tests of POST /api/v1/events: a service that takes events, bodies for it, and what it spooled."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx

from sinks.http import HttpSettings, IngestSettings, Spool
from sinks.http.staging import BodyKind
from sources.wire import decode_records
from tests.sinks.fakes import NOW_MS
from tests.sinks.http.conftest import Service, StartService

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


class Gate:
    """A stage that blocks every body until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def put(self, body: bytes, kind: BodyKind) -> None:
        assert body
        assert kind != "arrow"
        self.entered.release()
        assert self.open.wait(20)
