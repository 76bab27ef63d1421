"""A queue with Cloudflare's documented pull API: leases, acks, retries, delays, dead letters. Tests set its clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START_MS = 1_750_000_000_000


@dataclass
class Held:
    """A message in the queue: leased until `until`, or available from then on."""

    id: str
    sent_at: int
    attempts: int = 0
    lease: str | None = None
    until: int = 0


@dataclass
class Broker:
    """One queue. A message that leaves `messages` is either settled or in `dead`."""

    max_retries: int = 3
    dead_letters: bool = True
    retry_delay_s: int = 0
    names_leases: bool = True
    """Whether warnings name the leases, as newer versions of the API do."""
    now: int = START_MS
    messages: list[Held] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    strays: list[str | None] = field(default_factory=list)
    """Authorization of each GET, which the API does not have: of redirects that were followed."""
    status: int = 200
    url: str = ""
    leases: int = 0

    def state(self, message_id: str) -> tuple[str, int]:
        """Return `gone`, `dead`, `leased` or `delayed` with the time until which it is, or `available`."""
        if message_id in self.dead:
            return "dead", 0
        for message in self.messages:
            if message.id == message_id:
                if message.until <= self.now:
                    return "available", 0
                return ("leased" if message.lease else "delayed"), message.until
        return "gone", 0

    def pull(self, body: dict[str, Any]) -> dict[str, Any]:
        """Lease available messages."""
        given: list[dict[str, Any]] = []
        for message in [m for m in self.messages if m.until <= self.now]:
            if len(given) == body["batch_size"]:
                break
            if message.attempts > self.max_retries:  # its last lease ended
                self._exhaust(message)
                continue
            self.leases += 1
            message.attempts += 1
            message.lease, message.until = f"lease-{self.leases}", self.now + body["visibility_timeout_ms"]
            shown = {"id": message.id, "attempts": message.attempts, "timestamp_ms": message.sent_at, "body": "e30="}
            given.append({**shown, "lease_id": message.lease, "metadata": {"CF-Content-Type": "json"}})
        return {"message_backlog_count": len(self.messages), "messages": given}

    def ack(self, body: dict[str, Any]) -> dict[str, Any]:
        """Settle leases that are still held."""
        counts, warnings = {"acks": 0, "retries": 0}, {}
        for kind in counts:
            for entry in body.get(kind, []):
                message = next((m for m in self.messages if m.lease == entry["lease_id"] and m.until > self.now), None)
                if message is None:
                    warnings[entry["lease_id"]] = "lease expired or unknown"
                    continue
                counts[kind] += 1
                if kind == "acks":
                    self.messages.remove(message)
                elif message.attempts > self.max_retries:
                    self._exhaust(message)
                else:
                    delay_s = entry.get("delay_seconds", self.retry_delay_s)
                    message.lease, message.until = None, self.now + delay_s * 1000
        said: Any = warnings if self.names_leases else list(warnings.values())
        return {"ackCount": counts["acks"], "retryCount": counts["retries"], "warnings": said}

    def _exhaust(self, message: Held) -> None:
        self.messages.remove(message)
        if self.dead_letters:
            self.dead.append(message.id)


@contextmanager
def serving(broker: Broker) -> Iterator[Broker]:
    """Serve the broker over HTTP inside the with block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            broker.requests.append((self.path, body, self.headers["Authorization"]))
            if broker.status == 200:
                result = broker.pull(body) if self.path.endswith("/pull") else broker.ack(body)
                answer: dict[str, Any] = {"success": True, "errors": [], "messages": [], "result": result}
            else:
                answer = {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}], "result": None}
            content = json.dumps(answer).encode()
            self.send_response(broker.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            broker.strays.append(self.headers["Authorization"])
            self.send_error(405)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    broker.url = f"http://127.0.0.1:{server.server_port}/client/v4"
    try:
        yield broker
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
