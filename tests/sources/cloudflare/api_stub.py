"""A stub of Cloudflare's Queues API, built from its published schema: it runs in a thread on a free port and injects faults."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "stub-token"
BASE = "/client/v4"


@dataclass
class StubMessage:
    """A message in a stub queue."""

    id: str
    sent_at_ms: int
    attempts: int = 0
    body: str = ""
    content_type: str = "json"
    lease: str | None = None


@dataclass
class StubQueue:
    """A queue of the stub; `consumer` is a consumer object of the API's schema."""

    id: str
    name: str
    consumer: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    messages: list[StubMessage] = field(default_factory=list)
    backlog: int | None = None
    """The backlog its metrics report; None: the number of messages."""

    def send(self, body: str, content_type: str = "json") -> None:
        """Add a message, encoded as a pull returns it."""
        encoded = body if content_type == "text" else base64.b64encode(body.encode()).decode()
        number = len(self.messages)
        self.messages.append(StubMessage(f"{self.name}-{number}", 1_750_000_000_000 + number, 0, encoded, content_type))

    def as_listed(self) -> dict[str, Any]:
        """Return the queue as an entry of the API's queue list."""
        consumers = [] if self.consumer is None else [self.consumer]
        return {
            "queue_id": self.id,
            "queue_name": self.name,
            "created_on": "2025-06-01T00:00:00Z",
            "modified_on": "2025-06-01T00:00:00Z",
            "producers": [{"script": "producer", "type": "worker"}],
            "producers_total_count": 1,
            "consumers": consumers,
            "consumers_total_count": len(consumers),
            "settings": self.settings,
        }


@dataclass
class Request:
    """One request the stub received."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: Any
    headers: dict[str, str]


Fault = Callable[[BaseHTTPRequestHandler], None]
"""Writes the response instead of the stub."""


class Stub:
    """An account with queues.

    `faults` maps the end of a path to the faults that answer there, each once; after them the stub answers again.
    """

    def __init__(self) -> None:
        self.queues: list[StubQueue] = []
        self.requests: list[Request] = []
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.standing: dict[str, Fault] = {}
        """Faults that stay until they are removed."""
        self.has_peek = True
        self.lock = threading.Lock()
        self.url = ""
        self._leases = 0

    def add(self, name: str, **more: Any) -> StubQueue:
        """Add a queue with this name."""
        queue = StubQueue(f"{len(self.queues):032x}", name, **more)
        self.queues.append(queue)
        return queue

    def calls(self, end: str) -> list[Request]:
        """Return the requests whose path ends with `end`."""
        return [request for request in self.requests if request.path.endswith(end)]

    def answer(self, request: Request) -> tuple[int, Any]:
        """Return the status and JSON body for a request."""
        prefix = f"{BASE}/accounts/{ACCOUNT}/queues"
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return 403, failure(10000, "Authentication error")
        if not request.path.startswith(prefix):
            return 404, failure(7003, "Could not route")
        rest = request.path.removeprefix(prefix)
        if rest == "":
            return 200, self._list(request)
        found = re.fullmatch(r"/(\w+)/([\w/]+)", rest)
        queue = next((q for q in self.queues if found and q.id == found[1]), None)
        if found is None or queue is None:
            return 404, failure(10104, "Queue not found")
        match request.method, found[2]:
            case "GET", "metrics":
                return 200, success(self._metrics(queue))
            case "GET", "consumers":
                return 200, success(queue.as_listed()["consumers"])
            case "POST", "messages/peek" if self.has_peek:
                return 200, success({"messages": self._seen(queue, request.body)})
            case "POST", "messages/preview":
                return 200, success({"messages": self._seen(queue, request.body)})
            case "POST", "messages/pull":
                return 200, success({"message_backlog_count": 0, "messages": self._leased(queue, request.body)})
            case "POST", "messages/ack":
                return 200, success(self._settled(queue, request.body))
        return 404, failure(7003, "Could not route")

    def _list(self, request: Request) -> dict[str, Any]:
        page, per_page = (int(request.query.get(name, [default])[0]) for name, default in (("page", "1"), ("per_page", "20")))
        shown = self.queues[(page - 1) * per_page : page * per_page]
        pages = -(-len(self.queues) // per_page)
        info = {"page": page, "per_page": per_page, "count": len(shown), "total_count": len(self.queues)}
        return success([queue.as_listed() for queue in shown]) | {"result_info": info | {"total_pages": pages}}

    def _metrics(self, queue: StubQueue) -> dict[str, Any]:
        oldest = min((m.sent_at_ms for m in queue.messages), default=0)
        count = len(queue.messages) if queue.backlog is None else queue.backlog
        return {"backlog_count": count, "backlog_bytes": 100 * count, "oldest_message_timestamp_ms": oldest}

    def _seen(self, queue: StubQueue, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [_shown(m) for m in queue.messages[: body["batch_size"]]]

    def _leased(self, queue: StubQueue, body: dict[str, Any]) -> list[dict[str, Any]]:
        free = [m for m in queue.messages if m.lease is None][: body["batch_size"]]
        for message in free:
            self._leases += 1
            message.lease = f"lease-{self._leases}"
            message.attempts += 1
        return [{**_shown(m), "lease_id": m.lease} for m in free]

    def _settled(self, queue: StubQueue, body: dict[str, Any]) -> dict[str, Any]:
        acked = {entry["lease_id"] for entry in body["acks"]}
        before = len(queue.messages)
        queue.messages = [m for m in queue.messages if m.lease not in acked]
        return {"ackCount": before - len(queue.messages), "retryCount": 0, "warnings": {}}


def success(result: Any) -> dict[str, Any]:
    """Return the body of a successful response."""
    return {"success": True, "errors": [], "messages": [], "result": result}


def failure(code: int, message: str) -> dict[str, Any]:
    """Return the body of a failed response."""
    return {"success": False, "errors": [{"code": code, "message": message}], "messages": [], "result": None}


def answering(status: int, body: bytes | str, **headers: str) -> Fault:
    """Return a fault that answers with exactly this status, body and headers."""
    content = body.encode() if isinstance(body, str) else body

    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return fault


def hanging_up(handler: BaseHTTPRequestHandler) -> None:
    """A fault that closes the connection without a response."""
    handler.close_connection = True


@contextmanager
def serving() -> Iterator[Stub]:
    """Run a stub while the block runs."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length", 0))
            content = self.rfile.read(length)
            request = Request(
                self.command,
                parts.path,
                parse_qs(parts.query),
                json.loads(content) if content else None,
                {name.lower(): value for name, value in self.headers.items()},
            )
            with stub.lock:
                stub.requests.append(request)
                fault = _fault(stub, parts.path)
                status, body = stub.answer(request) if fault is None else (0, None)
            if fault is not None:
                fault(self)
            else:
                answering(status, json.dumps(body), content_type="application/json")(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}{BASE}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _fault(stub: Stub, path: str) -> Fault | None:
    for end, faults in stub.faults.items():
        if faults and path.endswith(end):
            return faults.pop(0)
    return next((fault for end, fault in stub.standing.items() if path.endswith(end)), None)


def _shown(message: StubMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "attempts": message.attempts,
        "timestamp_ms": message.sent_at_ms,
        "body": message.body,
        "metadata": {"CF-Content-Type": message.content_type, "CF-sourceMessageSource": "worker"},
    }
