"""Faults of a service on one machine."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streaming.checkpoint.offset_log import batch_ids
from streaming.checkpoint.versions import FOLDER, VersionLedger
from streaming.folder import LocalFolder
from streaming.health.liveness import descendants, state_of
from tests.faults.scene import Fault, Place, Scene


def driver_killed(scene: Scene) -> None:
    """SIGKILL of the driver"""
    time.sleep(random.uniform(0, 2))
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


def java_killed(scene: Scene) -> None:
    """Java killed (SIGKILL, as when memory runs out)"""
    java = _java(scene)
    scene.strike()
    os.kill(java, signal.SIGKILL)
    scene.wait_for_end()
    scene.start_again()


def java_stopped(scene: Scene) -> None:
    """Java stopped (SIGSTOP), `batch_deadline_s: 60`"""
    java = _java(scene)
    scene.strike()
    os.kill(java, signal.SIGSTOP)
    scene.wait_for_end()
    scene.start_again()


def disk_full(scene: Scene) -> None:
    """Disk of the checkpoint full for 20 s"""
    scene.strike()
    filler = scene.place.folder / "data" / "filler"
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
    version = ledger.read(batch_ids(LocalFolder(scene.checkpoint / "commits"))[-1])
    os.truncate(scene.checkpoint / "shards" / next(iter(version.shards.values())).files[0].name, 0)
    scene.start_again()


def copied(scene: Scene) -> None:
    """Live checkpoint copied and started elsewhere"""
    scene.strike()
    folder = scene.place.folder
    shutil.copytree(folder / "data", folder / "copy", copy_function=_copy_if_there)
    scene.service.kill()
    shutil.rmtree(folder / "data" / "checkpoint")
    (folder / "copy" / "checkpoint").rename(scene.checkpoint)
    shutil.rmtree(folder / "copy")
    scene.start_again()


def _worker(scene: Scene) -> int:
    """Return a running Python worker."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        below = descendants(scene.service.process.pid)
        leaves = [pid for pid in below if not descendants(pid) and _is_python(pid)]
        busy = [pid for pid in leaves if state_of(pid) == "R"]
        if busy:
            return busy[-1]
        time.sleep(0.02)
    return leaves[-1]


def _java(scene: Scene) -> int:
    """Return the process id of Spark's Java."""
    for pid in descendants(scene.service.process.pid):
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "java":
            return pid
    raise AssertionError("Java does not run")


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
def _impatient(folder: Path) -> Iterator[Place]:
    """Shorten the deadline; with the default of 240 s these faults take four times as long."""
    place = Place(folder)
    place.spark["batch_deadline_s"] = 60
    yield place


@contextmanager
def _small_disk(folder: Path) -> Iterator[Place]:
    data = folder / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(data)], check=True)
    try:
        yield Place(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=False)


ONE_MACHINE: Final = {
    "driver_killed": Fault(driver_killed, times=10),
    "worker_killed": Fault(worker_killed),
    "worker_stopped": Fault(worker_stopped, _impatient),
    "java_killed": Fault(java_killed),
    "java_stopped": Fault(java_stopped, _impatient),
    "disk_full": Fault(disk_full, _small_disk),
    "checkpoint_truncated": Fault(checkpoint_truncated),
    "copied": Fault(copied),
}
