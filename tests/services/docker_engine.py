"""A fake Docker engine: it answers the calls testcontainers makes, and records what a container is created from."""

import io
import json
import re
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any


class DockerEngine:
    """The requests the engine received, and the behaviour of its container."""

    def __init__(self, system: str, log: str) -> None:
        self.system, self.log, self.status = system, log, "running"
        self.created: dict[str, Any] = {}
        """The body of the last `POST /containers/create`."""
        self.files: dict[str, str] = {}
        """The files copied into the container: text by path."""
        self.removed = False


@contextmanager
def start(socket: Path, *, system: str = "Debian GNU/Linux 13", log: str = "") -> Iterator[DockerEngine]:
    """Run an engine on the Unix socket while the block runs. It has every image; a container's log is `log`."""
    engine = DockerEngine(system, log)

    handler = type("Handler", (_Handler,), {"engine": engine})
    with _Server(str(socket), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield engine
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingUnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close their connection early."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    engine: DockerEngine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self._path()
        if path == "/version":
            self._answer({"ApiVersion": "1.47", "Version": "28.1.0"})
        elif path == "/info":
            self._answer({"ServerVersion": "28.1.0", "OperatingSystem": self.engine.system})
        elif path.endswith("/logs"):
            self._answer_bytes(_frame(self.engine.log.encode()) if "stdout=1" in self.path else b"")
        elif path.startswith("/containers/"):
            self._answer({"Id": "c0ffee", "State": {"Status": self.engine.status}, "Config": {"Tty": False}})
        else:
            self._answer({"Id": "sha256:1"})  # an image

    def do_POST(self) -> None:
        body = self._body()
        if self._path() == "/containers/create":
            self.engine.created = json.loads(body)
            self._answer({"Id": "c0ffee", "Warnings": []}, 201)
        else:
            self._answer_bytes(b"", 204)

    def do_PUT(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(self._body())) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member)
                self.engine.files[f"/{member.name.lstrip('/')}"] = content.read().decode() if content else ""
        self._answer_bytes(b"")

    def do_DELETE(self) -> None:
        self.engine.removed = True
        self._answer_bytes(b"", 204)

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _path(self) -> str:
        return re.sub(r"^/v[\d.]+", "", self.path).partition("?")[0]

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        self._answer_bytes(json.dumps(content).encode(), status, "application/json")

    def _answer_bytes(self, content: bytes, status: int = 200, kind: str = "application/octet-stream") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _frame(text: bytes) -> bytes:
    """Return one frame of an engine's multiplexed output: the stream (stdout), the length, the text."""
    return b"\x01\0\0\0" + len(text).to_bytes(4, "big") + text
