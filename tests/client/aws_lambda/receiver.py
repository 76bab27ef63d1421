"""An ingest endpoint that records what it receives, and can be slow, refuse, or hang."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.waiting import until


class Receiver:
    """Accepts posts on a loopback port. It uses bare sockets, because its own time is part of what is measured."""

    def __init__(self, port: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.posts = 0
        self.status = 202
        self.explanation = b"{}"
        self.delay_s = 0.0
        self.hangs = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", port))
        self.port = self._server.getsockname()[1]
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The value for `QUEUEWATCH_TO`."""
        return f"http://127.0.0.1:{self.port}/api/v1/events"

    def of(self, *ids: str) -> list[dict[str, Any]]:
        """Return the distinct events of these messages, in the order of arrival."""
        with self._lock:
            seen: dict[str, dict[str, Any]] = {}
            for event in self.events:
                if event.get("message_id") in ids:
                    seen.setdefault(json.dumps(event, sort_keys=True), event)
            return list(seen.values())

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait until there are `count` events and return all; fail if they do not arrive in time."""
        until(lambda: len(self.events) >= count, f"{count} events arrived", shows=lambda: self.events)
        with self._lock:
            return list(self.events)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections, as a load balancer does with idle ones."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._open.clear()

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection.makefile("rb") as stream:
            while head := stream.readline():
                headers = {}
                while (line := stream.readline().decode().strip()) != "":
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0)))
                with self._lock:
                    self.posts += 1
                while self.hangs:
                    time.sleep(0.01)
                time.sleep(self.delay_s) if self.delay_s else None
                status = self.status
                if status < 300:
                    with self._lock:
                        self.headers.append(head.decode().strip() + " " + headers.get("authorization", ""))
                        self.events.extend(json.loads(line) for line in body.splitlines())
                answer = self.explanation
                connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Run an endpoint inside the with block."""
    made = Receiver(port)
    try:
        yield made
    finally:
        made.close()
