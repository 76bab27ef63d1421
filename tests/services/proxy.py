"""`queuewatch-proxy` as a separate process, as it runs beside an application."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.services.process import running, scratch_folder

CONSUMER = "pod-1"
# One for all requests: each new client reads the certificates of all authorities.
_HTTP = httpx.Client(headers={"Connection": "close"})
_CLIENT = Path(__file__).parents[2] / "client"
_AWS = {"AWS_ACCESS_KEY_ID": "proxy-key", "AWS_SECRET_ACCESS_KEY": "proxy-secret", "AWS_REGION": "us-east-1"}


@dataclass
class Proxy:
    """A running proxy."""

    endpoint: str
    """The URL for `endpoint_url`."""
    spool: Path
    log: Path
    pid: int = field(default=0)

    def stats(self) -> dict[str, Any]:
        """Return its current counters."""
        found: dict[str, Any] = _HTTP.get(f"{self.endpoint}/-/stats").json()
        self.pid = found["pid"]
        return found

    def events(self, within_s: float = 10.0) -> list[dict[str, Any]]:
        """Return every event so far, in order, once all accepted events are readable."""
        deadline = time.monotonic() + within_s
        while True:
            accepted = self.stats()["accepted"]
            lines = [line for path in sorted(self.spool.glob("*.ndjson")) for line in path.read_text().splitlines()]
            if len(lines) >= accepted or time.monotonic() > deadline:
                return [json.loads(line) for line in lines]
            time.sleep(0.05)


@contextmanager
def start(upstream: str, *options: str, to: str | None = None, env: dict[str, str] | None = None) -> Iterator[Proxy]:
    """Run a proxy for the endpoint `upstream` while the block runs; by default telemetry goes to a spool folder."""
    with scratch_folder("proxy") as folder:
        spool = folder / "spool"
        command = command_line(upstream, "--to", to or f"spool:{spool}?max_age_s=0.05", *options)
        log = folder / "proxy.log"
        # A clean stop waits a second for further calls, and five for a destination that is down; its own tests show it.
        with running(command, log, _endpoint, env=environment(env or {}), kill=True) as endpoint:
            yield Proxy(endpoint, spool, log)


def command_line(upstream: str, *options: str) -> Sequence[str]:
    """Return the command that starts a proxy."""
    return [
        sys.executable,
        "-m",
        "queuewatch.proxy",
        "--listen",
        "127.0.0.1:0",
        "--endpoint",
        upstream,
        "--consumer",
        CONSUMER,
        *options,
    ]


def environment(more: dict[str, str]) -> dict[str, str]:
    """Return credentials that are valid nowhere, and the path of this checkout."""
    return {**os.environ, **_AWS, "PYTHONPATH": str(_CLIENT), **more}


def _endpoint(log: str) -> str | None:
    found = re.search(r"listening on (\S+):(\d+)", log)
    return f"http://{found[1]}:{found[2]}" if found else None
