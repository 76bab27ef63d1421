"""The real job, `queuewatch run`, in a process of its own, and what it logs about its batches."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.benchmarks import scrape
from tests.benchmarks.processes import Spent, memory_of, spent_by
from tests.services.process import free_port

COMMAND: Final = [str(Path(sys.executable).with_name("queuewatch"))]
_START_WITHIN_S: Final = 120
_STALLED_AFTER_S: Final = 120


class JobFailed(RuntimeError):
    """The job ended or makes no progress; the message has its last log lines."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One committed batch."""

    batch_id: int
    durations_ms: Mapping[str, int]
    """By Spark's names; `triggerExecution` is the total."""
    spent: Spent
    """Processor time of the job's processes from its start to the end of this batch."""

    @property
    def duration_s(self) -> float:
        """Duration of the whole batch."""
        return self.durations_ms["triggerExecution"] / 1000


class Job:
    """A running job. Batches are recorded as they are committed."""

    def __init__(self, process: subprocess.Popen[str], url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        """Holds `checkpoint` and everything else that the job writes."""
        self._process = process
        self._batches: list[Batch] = []
        self._last_words: list[str] = []
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def batches(self) -> list[Batch]:
        """Return the batches committed so far, in order."""
        with self._lock:
            return list(self._batches)

    def wait(self, done: Callable[[], bool]) -> None:
        """Block until `done`. Raises `JobFailed` if the job ends, or commits no batch for two minutes."""
        seen, since = -1, time.monotonic()
        while not done():
            if self._process.poll() is not None:
                self._reader.join(5)
                raise JobFailed(f"the job ended with {self._process.returncode}: {self._words()}")
            count = len(self.batches())
            if count != seen:
                seen, since = count, time.monotonic()
            elif time.monotonic() - since > _STALLED_AFTER_S:
                raise JobFailed(f"no batch for {_STALLED_AFTER_S} s: {self._words()}")
            time.sleep(0.1)

    def metrics(self) -> Mapping[str, float]:
        """Return every sample of `/metrics`, summed over queues."""
        return scrape.totals(scrape.page(self.url))

    def memory_bytes(self) -> int:
        """Return the memory of the job's processes."""
        return memory_of(self._process.pid)

    def is_ready(self) -> bool:
        """Whether the service says that it is ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def accepted(self) -> int:
        """Return the accepted events in the published snapshot; 0 before the first."""
        try:
            return scrape.accepted(scrape.page(self.url))
        except OSError:
            return 0

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            said = _json(line)
            if said.get("event") == "batch_done":
                durations = {name: value for name, value in said.items() if isinstance(value, int)}
                batch = Batch(durations.pop("batch_id"), durations, spent_by(self._process.pid))
                with self._lock:
                    self._batches.append(batch)
            elif said.get("level") != "debug" and line.strip():
                self._last_words = [*self._last_words[-7:], line.strip()]

    def _words(self) -> str:
        return " | ".join(self._last_words) or "it said nothing"


@contextmanager
def running(
    bootstrap: str,
    topic: str,
    *,
    records_per_trigger: int,
    parallelism: int,
    trigger_interval_s: float = 0.0,
    memory: str = "5g",
    into: Path | None = None,
) -> Iterator[Job]:
    """Run `queuewatch run` on `topic` from its beginning. The with block begins when a batch is committed. Raises `JobFailed`.

    `into`: the folder for all files of the job. If it has a checkpoint, the job goes on from it, and the block begins at once.
    """
    port = free_port()
    with _kept(into) as folder:
        continues = (folder / "checkpoint").exists()
        config: dict[str, Any] = {
            "spark": {
                "master": f"local[{parallelism}]",
                "shards": parallelism,
                "trigger_interval_s": trigger_interval_s,
                "checkpoint_dir": str(folder / "checkpoint"),
                "driver_memory": memory,
            },
            "source": {
                "kafka": {
                    "bootstrap_servers": [bootstrap],
                    "topics": [topic],
                    "max_records_per_trigger": records_per_trigger,
                }
            },
            "http": {"port": port},
            "signal_log": {"path": str(folder / "signals.ndjson")},
            "quarantine": {"path": str(folder / "quarantine.ndjson")},
            "log": {"level": "debug", "format": "json"},
        }
        path = folder / "queuewatch.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        process = subprocess.Popen(
            [*COMMAND, "run", "--config", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
        )
        job = Job(process, f"http://127.0.0.1:{port}", folder)
        try:
            begin = time.monotonic()
            if not continues:
                job.wait(lambda: bool(job.batches()) or time.monotonic() - begin > _START_WITHIN_S)
            yield job
        finally:
            _stop(process)


@contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="queuewatch-bench-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=45)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _json(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
