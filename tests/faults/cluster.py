"""A Spark standalone cluster of real processes: a master and workers that share a secret and encrypt what they send."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from streaming.health.liveness import descendants
from streaming.spark.runtime import ensure_java
from tests.services.process import free_port, running

_SPARK: Final = Path(pyspark.__file__).parent
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_PID: Final = re.compile(r"Started daemon with process name: (\d+)@")
_READY_S: Final = 180


class Cluster:
    """A master and workers of one core each."""

    def __init__(self, folder: Path, settings: Path, stack: ExitStack) -> None:
        """Prepare the cluster and start its master; `settings` is a folder with the Spark settings that all processes share."""
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.workers: list[int] = []
        """The process ids of the workers."""
        self._folder = folder
        self._stack = stack
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(ensure_java().home),
            "SPARK_HOME": str(_SPARK),
            "SPARK_CONF_DIR": str(settings),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._start("master.Master", "--port", str(port), says="I have been elected leader")

    def start_worker(self) -> None:
        """Start another worker."""
        folder = self._folder / f"worker-{len(self.workers)}"
        arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder), self.master)
        self.workers.append(self._start("worker.Worker", *arguments, says="Successfully registered with master"))

    def _start(self, kind: str, *arguments: str, says: str) -> int:
        """Start a part of the cluster, wait until its log contains `says`, and return its process id."""
        name = f"org.apache.spark.deploy.{kind}"
        command = [str(_SPARK / "bin" / "spark-class"), name, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        log = self._folder / f"{kind}-{len(self.workers)}.log"

        def ready(text: str) -> int | None:
            pid = _PID.search(text)
            return int(pid[1]) if pid is not None and says in text else None

        return self._stack.enter_context(running(command, log, ready, within_s=_READY_S, env=self._environment))


@contextmanager
def cluster(folder: Path, *, workers: int, tls: bool = False) -> Iterator[Cluster]:
    """Run a cluster while the block runs; a Spark started by this process in the meantime uses its settings."""
    with shared_settings(folder / "spark", tls=tls) as settings, ExitStack() as stack:
        made = Cluster(folder, settings, stack)
        for _ in range(workers):
            made.start_worker()
        yield made


@contextmanager
def shared_settings(folder: Path, *, tls: bool = False) -> Iterator[Path]:
    """Create a folder of Spark settings with a secret, used by every Spark this process starts while the block runs.

    What the processes send, pickled data included, is encrypted: with TLS, or with AES under a key derived from the secret.
    """
    folder.mkdir(parents=True, mode=0o700)
    settings = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32)}
    settings |= _tls(folder) if tls else {"spark.network.crypto.enabled": "true"}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    before = os.environ.get("SPARK_CONF_DIR")
    os.environ["SPARK_CONF_DIR"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["SPARK_CONF_DIR"]
        else:
            os.environ["SPARK_CONF_DIR"] = before


def _tls(folder: Path) -> dict[str, str]:
    """Create a key with a self-signed certificate, which is also the only one trusted; return the settings that use them."""
    password = secrets.token_hex(16)
    keys = folder / "keys.p12"
    keytool = ensure_java().installation / "bin" / "keytool"
    command = [str(keytool), "-genkeypair", "-alias", "spark", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
    command += [
        "-keyalg",
        "EC",
        "-validity",
        "2",
        "-storetype",
        "PKCS12",
        "-keystore",
        str(keys),
        "-storepass:env",
        "STORE_PASSWORD",
    ]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "STORE_PASSWORD": password})
    return {
        "spark.ssl.rpc.enabled": "true",
        "spark.ssl.rpc.protocol": "TLSv1.3",
        "spark.ssl.rpc.keyStore": str(keys),
        "spark.ssl.rpc.keyStoreType": "PKCS12",
        "spark.ssl.rpc.keyStorePassword": password,
        "spark.ssl.rpc.keyPassword": password,
        "spark.ssl.rpc.trustStore": str(keys),
        "spark.ssl.rpc.trustStoreType": "PKCS12",
        "spark.ssl.rpc.trustStorePassword": password,
    }


def executors() -> list[int]:
    """Return the descendants of this process in which a cluster's tasks run."""
    return [pid for pid in descendants(os.getpid()) if _EXECUTOR in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
