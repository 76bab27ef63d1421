"""Break a running service in each way, start it again where that is what an init system does, and compare what it counted.

Usage: python -m tests.faults [--events-per-s N] [FAULT…]

Needs root for the full disk. Prints a line of the table in docs/reliability.md per fault; exits with 1 when anything was lost or
doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streaming.spark.folder import LocalFolder
from streaming.spark.liveness import descendants, state_of
from streaming.spark.recovery import numbered
from streaming.spark.versions import FOLDER, VersionLedger
from tests.e2e.service import Service, running
from tests.faults.load import Load

ACCEPTED: Final = 'queuewatch_events_total{result="accepted"}'
WITHIN_S: Final = 420
_STEADY_S: Final = 10


@dataclass
class Scene:
    """One service under load."""

    folder: Path
    config: dict[str, Any]
    service: Service
    load: Load
    stack: ExitStack
    in_flight: int = 0
    """Events that had been sent and were in no committed batch when it happened."""
    began_s: float = 0.0

    @property
    def checkpoint(self) -> Path:
        """Of the job."""
        return self.folder / "data" / "checkpoint"

    def strike(self) -> None:
        """Note what is in flight, and the time."""
        self.in_flight = self.load.events - int(self.service.metrics().get(ACCEPTED, 0))
        self.began_s = time.monotonic()

    def start_again(self) -> None:
        """What an init system does."""
        self.service = self.stack.enter_context(running(self.folder, self.config))

    def wait_for_more(self, than: int) -> float:
        """Until events sent later than `than` are counted; the seconds since the fault."""
        self.service.wait(lambda metrics: metrics.get(ACCEPTED, 0) > than, WITHIN_S)
        return time.monotonic() - self.began_s


def driver_killed(scene: Scene) -> None:
    """SIGKILL of the driver"""
    time.sleep(scene.load.events % 97 / 50)
    scene.strike()
    scene.service.kill()
    scene.start_again()


def worker_killed(scene: Scene) -> None:
    """Python worker killed in a batch"""
    worker = _worker(scene)
    scene.strike()
    os.kill(worker, signal.SIGKILL)


def worker_stopped(scene: Scene) -> None:
    """Python worker stopped (SIGSTOP) in a batch, `batch_deadline_s: 60`"""
    worker = _worker(scene)
    scene.strike()
    os.kill(worker, signal.SIGSTOP)
    scene.stack.callback(_kill, worker)


def disk_full(scene: Scene) -> None:
    """Disk of the checkpoint full for 20 s"""
    scene.strike()
    filler = scene.folder / "data" / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
    time.sleep(20)
    filler.unlink()


def checkpoint_truncated(scene: Scene) -> None:
    """SIGKILL, and the last state cut to nothing"""
    scene.strike()
    scene.service.kill()
    ledger = VersionLedger(LocalFolder(scene.checkpoint / FOLDER))
    version = ledger.read(numbered(scene.checkpoint / "commits")[-1])
    os.truncate(scene.checkpoint / "shards" / next(iter(version.shards.values())).files[0].name, 0)
    scene.start_again()


def copied(scene: Scene) -> None:
    """Live checkpoint copied and started elsewhere"""
    scene.strike()
    shutil.copytree(scene.folder / "data", scene.folder / "copy", copy_function=_copy_if_there)
    scene.service.kill()
    shutil.rmtree(scene.folder / "data" / "checkpoint")
    (scene.folder / "copy" / "checkpoint").rename(scene.checkpoint)
    scene.start_again()


FAULTS: Final[dict[str, Callable[[Scene], None]]] = {
    made.__name__: made for made in (driver_killed, worker_killed, worker_stopped, disk_full, checkpoint_truncated, copied)
}


def main() -> int:
    """Do what the usage says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--events-per-s", type=int, default=5_000)
    options = parser.parse_args()
    sys.stdout.write("| fault | events in flight | lost | doubled | seconds to recover |\n|---|---|---|---|---|\n")
    wrong = False
    for name in options.faults or FAULTS:
        row, lost, doubled = tried(FAULTS[name], options.events_per_s)
        wrong |= bool(lost or doubled)
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
    return int(wrong)


def tried(fault: Callable[[Scene], None], events_per_s: int) -> tuple[str, int, int]:
    """One fault: the row of the table, events lost, and events counted or signals announced twice."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="queuewatch-faults-", ignore_cleanup_errors=True)))
        (folder / "data").mkdir()
        if fault is disk_full:
            stack.enter_context(_small_disk(folder / "data"))
        config = {
            "source": {"spool": {"folder": "spool"}},
            "spark": {"checkpoint_dir": "data/checkpoint", "master": "local[2]", "driver_memory": "1g", "batch_deadline_s": 60},
            "signal_log": {"path": "signals.ndjson"},
            "log": {"format": "json"},
        }
        load = Load(folder / "spool", events_per_s)
        stack.callback(load.stop)
        service = stack.enter_context(running(folder, config))
        scene = Scene(folder, config, service, load, stack)
        service.wait(lambda metrics: metrics.get(ACCEPTED, 0) > 0, WITHIN_S)
        time.sleep(_STEADY_S)
        fault(scene)
        seconds = scene.wait_for_more(scene.load.events)
        sent = load.stop()
        metrics = scene.service.wait(lambda metrics: metrics.get(ACCEPTED, 0) >= sent, WITHIN_S)
        time.sleep(3)
        metrics = scene.service.metrics()
        scene.service.stop()
        keys = Counter(json.loads(line)["announcement"] for line in (folder / "signals.ndjson").read_text().splitlines())
        counted = int(metrics[ACCEPTED] + metrics.get('queuewatch_events_total{result="duplicate"}', 0))
        doubled = max(0, counted - sent) + sum(n - 1 for n in keys.values())
        lost = sent - int(metrics[ACCEPTED])
        return f"| {fault.__doc__} | {scene.in_flight:,} | {lost} | {doubled} | {seconds:.0f} |", lost, doubled


def _worker(scene: Scene) -> int:
    """A Python worker that is at work just now."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        below = descendants(scene.service.process.pid)
        leaves = [pid for pid in below if not descendants(pid) and _is_python(pid)]
        busy = [pid for pid in leaves if state_of(pid) == "R"]
        if busy:
            return busy[-1]
        time.sleep(0.02)
    return leaves[-1]


def _is_python(pid: int) -> bool:
    try:
        return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    if _is_python(pid):
        os.kill(pid, signal.SIGKILL)


def _copy_if_there(source: str, target: str) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        time.sleep(0)


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


if __name__ == "__main__":
    raise SystemExit(main())
