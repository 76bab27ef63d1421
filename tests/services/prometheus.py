"""Prometheus and Alertmanager, the machine's own binaries, on loopback ports with second-long intervals."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.services.process import ServiceUnavailable, free_port, running, scratch_folder


@dataclass(frozen=True)
class Binaries:
    """Where the four programs are."""

    prometheus: str
    promtool: str
    alertmanager: str
    amtool: str


@dataclass(frozen=True)
class Server:
    """A running Prometheus or Alertmanager."""

    url: str
    """Base URL, without a slash at the end."""

    @property
    def address(self) -> str:
        """host:port, as a scrape target or an Alertmanager address is written."""
        return self.url.removeprefix("http://")


def binaries() -> Binaries:
    """The programs on PATH (Debian names one `prometheus-alertmanager`). Raises `ServiceUnavailable`."""
    return Binaries(
        _program("prometheus"),
        _program("promtool"),
        _program("alertmanager", "prometheus-alertmanager"),
        _program("amtool"),
    )


@contextmanager
def start_prometheus(
    targets: Sequence[str] = (),
    *,
    rule_files: Sequence[Path] = (),
    alertmanager: Server | None = None,
    interval: str = "1s",
    job: str = "queuewatch",
    config: Mapping[str, Any] | None = None,
) -> Iterator[Server]:
    """A Prometheus that scrapes `targets` (host:port) and evaluates `rule_files` every `interval`.

    `config` adds to or replaces top-level entries of its configuration. Raises `ServiceUnavailable`.
    """
    program = binaries().prometheus
    settings: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
        "rule_files": [str(path.resolve()) for path in rule_files],
    }
    if alertmanager:
        peers = [{"static_configs": [{"targets": [alertmanager.address]}]}]
        settings["alerting"] = {"alertmanagers": peers}
    settings |= config or {}
    with scratch_folder("prometheus") as folder:
        options = [
            f"--storage.tsdb.path={folder}/data",
            "--rules.alert.resend-delay=1s",
            "--web.enable-lifecycle",
        ]
        with _serving(program, folder, settings, options) as server:
            yield server


@contextmanager
def start_alertmanager(config: Mapping[str, Any]) -> Iterator[Server]:
    """An Alertmanager with the configuration given (routes and receivers), without a cluster.

    Raises `ServiceUnavailable`.
    """
    program = binaries().alertmanager
    with scratch_folder("alertmanager") as folder:
        options = [f"--storage.path={folder}/data", "--cluster.listen-address="]
        with _serving(program, folder, config, options) as server:
            yield server


@contextmanager
def _serving(program: str, folder: Path, config: Mapping[str, Any], options: Sequence[str]) -> Iterator[Server]:
    file = folder / "config.yml"
    file.write_text(yaml.safe_dump(dict(config)))
    server = Server(f"http://127.0.0.1:{free_port()}")
    command = [program, f"--config.file={file}", f"--web.listen-address={server.address}", *options]
    with running(command, folder / "log", lambda _: _is_ready(server), within_s=30):
        yield server


def _is_ready(server: Server) -> bool | None:
    try:
        return httpx.get(f"{server.url}/-/ready", timeout=2).status_code == 200 or None
    except httpx.TransportError:
        return None


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise ServiceUnavailable(f"no {names[0]} on PATH; install the packages prometheus and prometheus-alertmanager")
