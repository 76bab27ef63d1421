"""A small HTTP server for scrapes that serves the current text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Scraped:
    """Where the server listens (host:port), and the URL of its metrics."""

    address: str

    @property
    def metrics_url(self) -> str:
        """The URL of `/metrics`."""
        return f"http://{self.address}/metrics"


@contextmanager
def serve_metrics(text: Callable[[], bytes]) -> Iterator[Scraped]:
    """Answer every request with `text()` as Prometheus exposition, inside the with block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, although every scrape is a request."""

    with listening(Handler) as address:
        yield Scraped(address)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run an HTTP server in a thread, on a free loopback port, and yield its host:port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
