"""A local server process: started, waited for, stopped by its own id."""

import contextlib
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from streaming.spark import jars
from streaming.spark.runtime import RuntimeUnavailable, find_java

Ready = TypeVar("Ready")
_POMS = Path(__file__).parents[2] / "deploy" / "jars"


class ServiceUnavailable(Exception):
    """A service is not available on this machine; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def free_port() -> int:
    """Return a free loopback TCP port below the range that the system uses for outgoing connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Return whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def java() -> str:
    """Return the `java` to start a service with. Raises `ServiceUnavailable`."""
    try:
        return str(find_java().executable)
    except RuntimeUnavailable as error:
        raise ServiceUnavailable(str(error)) from error


def jar_folder(name: str) -> Path:
    """Return the folder with the jars of `deploy/jars/NAME.xml`. Raises `ServiceUnavailable`."""
    pom = _POMS / f"{name}.xml"
    try:
        jars.resolve(pom)
    except jars.JarsUnavailable as error:
        raise ServiceUnavailable(str(error)) from error
    return jars.cached(pom)


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Create a folder for a service's configuration and data, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix=f"queuewatch-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    ready: Callable[[str], Ready | None],
    *,
    within_s: float = 60,
    env: Mapping[str, str] | None = None,
    kill: bool = False,
) -> Iterator[Ready]:
    """Run `command` while the block runs, with its output in `log`. `kill`: end it without waiting for a clean stop.

    `ready` receives the output so far and returns the value for the block, or None while the service is not up.
    Raises `ServiceUnavailable`, with the end of the log, if the process ends early or is not ready `within_s`.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=env,
        )
    try:
        yield _wait(process, command[0], log, ready, within_s)
    finally:
        _stop(process, kill=kill)


def _wait(
    process: subprocess.Popen[bytes],
    name: str,
    log: Path,
    ready: Callable[[str], Ready | None],
    within_s: float,
) -> Ready:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        answer = ready(log.read_text(errors="replace"))
        if answer is not None:
            return answer
        if process.poll() is not None:
            raise ServiceUnavailable(f"{name} ended with {process.returncode}: {_last_words(log)}")
        time.sleep(0.05)
    raise ServiceUnavailable(f"{name} was not ready within {within_s:.0f} s: {_last_words(log)}")


def _stop(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    (process.kill if kill else process.terminate)()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-8:]) or "it said nothing"
