"""An endpoint that records requests and gives the answers that a test chooses.

Like SQS, it refuses a call whose queue URL has the host of another endpoint.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

JSON = "application/x-amz-json-1.0"
SENT = b'{"MD5OfMessageBody":"0cc175b9c0f1b6a831c399e269772661","MessageId":"3f1c9d5e-2f5d-4a59-8f0a-4c39f7d2b001"}'
"""The answer to a send of `a`."""


@dataclass
class Asked:
    """A request as it arrived."""

    path: str
    headers: Message
    body: bytes
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when the caller closes the connection before the answer."""


Answer = tuple[int, str, bytes]
"""Status, content type and body."""


@dataclass
class FakeSqs:
    """A running endpoint."""

    endpoint: str
    asked: list[Asked]


@contextmanager
def fake_sqs(answer: Callable[[Asked], Answer], port: int = 0, ahead_s: int = 0) -> Iterator[FakeSqs]:
    """Run an endpoint that answers each request with `answer`, in a thread of its own, with a clock `ahead_s` ahead."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = Asked(self.path, self.headers, body)
            asked.append(found)
            watching = threading.Thread(target=self._watch, args=(found,), daemon=True)
            watching.start()
            status, kind, content = _refusal(found) or answer(found)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = True

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() + ahead_s if timestamp is None else timestamp)

        def _watch(self, found: Asked) -> None:
            try:
                if self.connection.recv(1) == b"":
                    found.hung_up.set()
            except OSError:
                found.hung_up.set()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield FakeSqs(f"http://127.0.0.1:{server.server_port}", asked)
    finally:
        server.shutdown()
        server.server_close()


def _refusal(found: Asked) -> Answer | None:
    """Return SQS's answer to a call for a queue of another endpoint, None for any other request."""
    url = _queue_url(found)
    if url is None or urlsplit(url).netloc == found.headers["Host"]:
        return None
    error = {"__type": "com.amazonaws.sqs#InvalidAddress", "message": f"The address {url} is not valid for this endpoint."}
    return 404, JSON, json.dumps(error).encode()


def _queue_url(found: Asked) -> str | None:
    if "X-Amz-Target" not in found.headers:
        return next(iter(parse_qs(found.body.decode("latin-1")).get("QueueUrl", ())), None)
    try:
        url = json.loads(found.body)["QueueUrl"]
    except (ValueError, LookupError, TypeError):
        return None
    return url if isinstance(url, str) else None
