"""`queuewatch run` as a process, observed from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.services.process import free_port
from tests.waiting import until

COMMAND = (sys.executable, "-m", "streaming.cli.main")
WITHIN_S = 180.0


class Service:
    """One process of the service. Its log is kept and parsed as JSON."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def get(self, path: str, accept: str = "*/*") -> str:
        """Return the body at `path`. Raises `OSError` while the service does not answer, or if it answers with an error."""
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=10) as answer:
            body: bytes = answer.read()
        return body.decode()

    def metrics(self) -> dict[str, float]:
        """Return every sample of `/metrics` by name and labels; empty while the service does not answer."""
        try:
            text = self.get("/metrics")
        except OSError:
            return {}
        return values_of(text)

    def wait(self, done: Callable[[dict[str, float]], bool], within_s: float = WITHIN_S) -> dict[str, float]:
        """Wait for metrics that satisfy `done` and return them."""
        metrics: dict[str, float] = {}

        def satisfied() -> bool:
            nonlocal metrics
            metrics = self.metrics()
            if not (metrics and done(metrics)):
                assert self.process.poll() is None, f"the service ended with {self.process.returncode}: {self.words()}"
                return False
            return True

        until(
            satisfied,
            "metrics are as expected",
            within_s,
            every_s=0.2,
            shows=lambda: f"last metrics {metrics}; log: {self.words()}",
        )
        return metrics

    def kill(self) -> None:
        """Send SIGKILL, as the kernel does when memory runs out: the process cannot clean up."""
        self.process.kill()
        self.process.wait()

    def stop(self, within_s: float = WITHIN_S) -> int:
        """Send SIGTERM, as an init system does, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(within_s)
        self._reader.join(10)
        return code

    def close(self) -> None:
        """Kill the process if it still runs, and close its log."""
        if self.process.poll() is None:
            self.kill()
        self._reader.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the log records with this event."""
        records = []
        for line in self.log:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("event") == event:
                records.append(record)
        return records

    def words(self) -> str:
        """Return the end of the log."""
        return " | ".join(self.log[-15:])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())


def values_of(exposition: str) -> dict[str, float]:
    """Return every sample of an exposition by name and labels."""
    lines = (line for line in exposition.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@contextmanager
def running(folder: Path, config: dict[str, Any], command: Sequence[str] = COMMAND) -> Iterator[Service]:
    """Run the service with `config` in `folder` inside the with block, on a free port. `command` is what `queuewatch` is."""
    port = free_port()
    path = folder / "queuewatch.yaml"
    path.write_text(yaml.safe_dump({**config, "http": {"port": port, **config.get("http", {})}}))
    process = subprocess.Popen(
        [*command, "run", "--config", str(path)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    service = Service(process, f"http://127.0.0.1:{port}")
    try:
        yield service
    finally:
        service.close()


def signals(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the signal log `signals.ndjson`."""
    path = folder / "signals.ndjson"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
