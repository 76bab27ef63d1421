"""A Lambda execution environment: the Runtime API, and a process with a real runtime interface client.

As on the platform, the process is frozen between invocations and killed at its timeout.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

FUNCTION = "orders-function"
_MAX_RESPONSE_BYTES = 6_291_556

Kind = Literal["returned", "error", "timeout", "exited", "init error"]


@dataclass(frozen=True)
class Result:
    """How an invocation ended, and how long the caller waited for it."""

    kind: Kind
    body: bytes
    duration_s: float

    @property
    def payload(self) -> Any:
        """The decoded body. Raises `ValueError` if it is not JSON."""
        return json.loads(self.body, parse_constant=_refuse)


@dataclass
class _Invocation:
    request_id: str
    payload: bytes
    deadline_ms: int
    ended: threading.Event
    kind: Kind = "timeout"
    body: bytes = b""
    refused: bool = False
    """The platform refused the response; runtimes exit when that happens."""


class Environment:
    """One execution environment of a function; `invoke` allows one caller at a time."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path, *, freezes: bool = True) -> None:
        self._command = list(command)
        self._variables = dict(variables)
        self._log = log
        self._freezes = freezes
        self._next: queue.Queue[_Invocation] = queue.Queue()
        self._pending: dict[str, _Invocation] = {}
        self._init_error = b""
        self._asks = threading.Event()
        """Set while the process waits for its next event, which is when the platform freezes it."""
        self._started = 0
        """Number of processes so far: a request of a killed process may still wait for an event."""
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_status: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def invoke(self, event: Any, *, timeout_s: float = 10.0, init_s: float = 20.0) -> Result:
        """Invoke the function with an event. The timeout starts when the runtime takes the event."""
        self._start()
        assert self._process is not None
        payload = json.dumps(event).encode()
        made = _Invocation(str(uuid.uuid4()), payload, 0, threading.Event())
        made.deadline_ms = int(timeout_s * 1000)  # becomes absolute when the event is taken
        self._pending[made.request_id] = made
        began_s = time.monotonic()
        self._next.put(made)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        taken_s: float | None = None
        while not made.ended.wait(0.0005):
            now_s = time.monotonic()
            if taken_s is None and self._next.empty():
                taken_s = now_s
            if self._process.poll() is not None:
                made.kind, made.body = ("init error", self._init_error) if self._init_error else ("exited", b"")
                break
            if now_s - (began_s + init_s if taken_s is None else taken_s) >= (0 if taken_s is None else timeout_s):
                break
        ended_s = time.monotonic()
        del self._pending[made.request_id]
        if made.refused or made.kind in ("timeout", "exited", "init error"):
            self.kill()
        elif self._freezes:
            # A client that is stopped while it connects fails when it goes on: Node's waits a second for a connection.
            self._asks.wait(1)
            self._process.send_signal(signal.SIGSTOP)
        return Result(made.kind, made.body, ended_s - (taken_s or began_s))

    def said(self) -> str:
        """Return how the last process ended and the end of the log: why a test failed."""
        return f"the last process ended with {self._exit_status}; log: {self._log.read_text(errors='replace')[-3_000:]}"

    def kill(self) -> None:
        """Kill the process, as the platform does; the next invocation starts another."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._exit_status = self._process.wait()
            self._started += 1
        self._process = None

    def close(self) -> None:
        """Stop the process and the API."""
        self.kill()
        self._server.shutdown()
        self._server.server_close()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._started += 1
        self._init_error = b""
        with contextlib.suppress(queue.Empty):
            while True:
                self._next.get_nowait()
        variables = {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": FUNCTION,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{FUNCTION}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "2026/11/22/[$LATEST]0",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            **self._variables,
        }
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        environment = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                environment._asks.set()
                made = self._next_event()
                environment._asks.clear()
                if made is None:
                    self.close_connection = True
                    return
                made.deadline_ms += int(time.time() * 1000)
                headers = {
                    "Lambda-Runtime-Aws-Request-Id": made.request_id,
                    "Lambda-Runtime-Deadline-Ms": str(made.deadline_ms),
                    "Lambda-Runtime-Invoked-Function-Arn": f"arn:aws:lambda:us-east-1:000000000000:function:{FUNCTION}",
                    "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0",
                    "Content-Type": "application/json",
                }
                with contextlib.suppress(OSError):  # the process that asked may have been killed
                    self._answer(200, made.payload, headers)

            def _next_event(self) -> _Invocation | None:
                """Return the next event, or None if the process that asked has been killed: the event is for its successor."""
                asked_by = environment._started
                while environment._started == asked_by:
                    with contextlib.suppress(queue.Empty):
                        made = environment._next.get(timeout=0.1)
                        if environment._started == asked_by:
                            return made
                        environment._next.put(made)
                return None

            def do_POST(self) -> None:
                body = self._body()
                parts = self.path.split("/")  # "", version, "runtime", "invocation", id, "response"
                if parts[3:] == ["init", "error"]:
                    environment._init_error = body
                    return self._answer(202, b"{}", {})
                made = environment._pending.get(parts[4])
                if made is None:
                    return self._answer(400, b'{"errorType":"InvalidRequestID"}', {})
                if parts[5] == "response" and len(body) > _MAX_RESPONSE_BYTES:
                    made.kind, made.body = "error", b'{"errorType":"Function.ResponseSizeTooLarge"}'
                    made.refused = True
                    self._answer(413, made.body, {})
                else:
                    made.kind, made.body = ("returned" if parts[5] == "response" else "error"), body
                    self._answer(202, b"{}", {})
                made.ended.set()
                return None

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def environment(
    command: Sequence[str], variables: Mapping[str, str], log: Path, *, freezes: bool = True
) -> Iterator[Environment]:
    """Run an execution environment inside the with block."""
    made = Environment(command, variables, log, freezes=freezes)
    try:
        yield made
    finally:
        made.close()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
