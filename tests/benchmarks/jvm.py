"""The Java parts of the benchmarks: compiled when needed, and run as processes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from streaming.spark.runtime import connector_jars, find_java
from tests.benchmarks.processes import spent_by

_SOURCES: Final = Path(__file__).with_name("java")
_SILENT_FOR_S: Final = 180

Signals = Literal["same", "messages", "few"]
"""What the baseline computes. `same`: the service's core signals. `messages`: only those of single messages, with a timeout
for messages held too long and a memory of ended ones. `few`: neither of these two.
"""


class NoCompiler(RuntimeError):
    """There is no `javac`; sections that need it are left out."""


@dataclass(frozen=True, slots=True)
class JvmBatch:
    """One batch of the per-message baseline."""

    batch_id: int
    records: int
    duration_s: float
    spent_s: float
    """Processor time of the baseline's process from its start to the end of this batch."""


class Jvm:
    """The compiled classes, in a temporary folder until `close`."""

    def __init__(self) -> None:
        javac = _javac()
        self._folder = tempfile.TemporaryDirectory(prefix="queuewatch-bench-java-")
        classes = Path(self._folder.name, "classes")
        sources = [str(path) for path in sorted(_SOURCES.glob("*.java"))]
        command = [javac, "-proc:none", "-nowarn", "-cp", _classpath(), "-d", str(classes), *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"javac failed: {done.stderr[-2000:]}")
        self._classes = classes
        # spark-submit needs a jar.
        self._jar = Path(self._folder.name, "baseline.jar")
        with zipfile.ZipFile(self._jar, "w") as archive:
            for path in classes.glob("*.class"):
                archive.write(path, path.name)

    def close(self) -> None:
        """Remove the classes."""
        self._folder.cleanup()

    def fill(self, bootstrap: str, topic: str, partitions: int, values: Iterable[bytes]) -> int:
        """Send `values` to `topic`, in turn over its partitions; return how many the broker accepted."""
        classpath = f"{self._classes}{os.pathsep}{_classpath()}"
        command = [str(find_java().executable), "-Xmx512m", "-cp", classpath]
        command += ["Fill", bootstrap, topic, str(partitions)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1 << 20
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for value in values:
                process.stdin.write(struct.pack(">i", len(value)))
                process.stdin.write(value)
            process.stdin.close()
            answer = process.stdout.read()
        if process.returncode != 0:
            raise RuntimeError(f"filling {topic} failed with {process.returncode}")
        return int(answer)

    def per_message(
        self,
        bootstrap: str,
        topic: str,
        *,
        records: int,
        records_per_trigger: int,
        parallelism: int,
        store: str = "rocksdb",
        signals: Signals,
        memory: str = "5g",
        on_batch: Callable[[JvmBatch], None] = lambda _: None,
    ) -> list[JvmBatch]:
        """Run the per-message baseline over all `records` of `topic` and return its batches in order."""
        main = "PerMessageAndQueue" if signals == "same" else "PerMessage"
        command = [str(_pyspark() / "bin" / "spark-submit"), "--class", main]
        command += ["--driver-memory", memory, "--master", f"local[{parallelism}]"]
        command += ["--conf", "spark.sql.adaptive.enabled=false"]
        command += ["--jars", ",".join(map(str, connector_jars())), str(self._jar)]
        with tempfile.TemporaryDirectory(prefix="queuewatch-jvm-", ignore_cleanup_errors=True) as scratch:
            command += [bootstrap, topic, f"{scratch}/checkpoint", str(records_per_trigger), str(parallelism)]
            reported = [] if signals == "same" else ["yes" if signals == "messages" else "no"]
            command += [store, *reported, str(records)]
            environment = os.environ | {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(_pyspark())}
            return _batches(command, environment, Path(scratch), on_batch)


def _batches(
    command: list[str], environment: dict[str, str], folder: Path, on_batch: Callable[[JvmBatch], None]
) -> list[JvmBatch]:
    """Return the batches that the baseline reports; kill it if it reports nothing for long."""
    found: list[JvmBatch] = []
    errors = folder / "errors.log"
    with errors.open("w") as error_output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_output,
            text=True,
            env=environment,
            cwd=folder,
        )
    watchdog = _watchdog(process)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            watchdog.cancel()
            watchdog = _watchdog(process)
            if line.startswith("BATCH "):
                _, batch, records, ms = line.split()
                spent_s = spent_by(process.pid).jvm_s
                found.append(JvmBatch(int(batch), int(records), int(ms) / 1000, spent_s))
                on_batch(found[-1])
        process.wait()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        lines = errors.read_text(errors="replace").splitlines()
        causes = [line for line in lines if "Exception" in line or "Error" in line]
        words = " | ".join(causes[-5:]) or f"it said nothing for {_SILENT_FOR_S} s"
        raise RuntimeError(f"the per-message baseline ended with {process.returncode}: {words}")
    return found


def _watchdog(process: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(_SILENT_FOR_S, process.kill)
    timer.daemon = True
    timer.start()
    return timer


def _pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _classpath() -> str:
    return os.pathsep.join([f"{_pyspark()}/jars/*", *map(str, connector_jars())])


def _javac() -> str:
    beside = find_java().installation / "bin" / "javac"
    found = str(beside) if beside.is_file() else shutil.which("javac")
    if found is None:
        raise NoCompiler("no javac beside the Java runtime or on PATH: install a JDK to run the JVM baseline")
    return found
