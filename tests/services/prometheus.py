"""Prometheus and Alertmanager, in containers or as the machine's own programs, on loopback ports with intervals of a second."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.services import containers
from tests.services.place import chosen
from tests.services.process import ServiceUnavailable, free_port, running, scratch_folder


@dataclass(frozen=True)
class Binaries:
    """The paths of the two command-line tools."""

    promtool: str
    amtool: str


@dataclass(frozen=True)
class Server:
    """A running Prometheus or Alertmanager."""

    url: str
    """The base URL, without a trailing slash."""

    @property
    def address(self) -> str:
        """Return host:port, the form of a scrape target or an Alertmanager address."""
        return self.url.removeprefix("http://")


def binaries() -> Binaries:
    """Find the tools on PATH. Raises `ServiceUnavailable`."""
    return Binaries(_program("promtool"), _program("amtool"))


@dataclass(frozen=True)
class _Program:
    service: str
    """The program's name in `deploy/compose.yaml`."""
    names: tuple[str, ...]
    """The program's possible names on PATH; Debian renames one."""
    data_option: str
    options: tuple[str, ...]


_PROMETHEUS = _Program(
    "prometheus", ("prometheus",), "--storage.tsdb.path", ("--rules.alert.resend-delay=1s", "--web.enable-lifecycle")
)
_ALERTMANAGER = _Program(
    "alertmanager", ("alertmanager", "prometheus-alertmanager"), "--storage.path", ("--cluster.listen-address=",)
)


def check_servers() -> None:
    """Check that Prometheus and Alertmanager can be started here. Raises `ServiceUnavailable`."""
    if not chosen().containers:
        for program in (_PROMETHEUS, _ALERTMANAGER):
            _program(*program.names)


@contextmanager
def start_prometheus(
    targets: Sequence[str] = (),
    *,
    rule_files: Sequence[Path] = (),
    alertmanager: Server | None = None,
    interval: str = "1s",
    config: Mapping[str, Any] | None = None,
    features: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a Prometheus that scrapes `targets` (host:port) and evaluates `rule_files` every `interval`.

    `config` adds or replaces top-level entries of its configuration; `features` are those to enable. Raises `ServiceUnavailable`.
    """
    settings: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": "queuewatch", "static_configs": [{"targets": list(targets)}]}],
        "rule_files": [f"rules-{number}.yml" for number, _ in enumerate(rule_files)],
    }
    if alertmanager:
        peers = [{"static_configs": [{"targets": [alertmanager.address]}]}]
        settings["alerting"] = {"alertmanagers": peers}
    settings |= config or {}
    rules = {f"rules-{number}.yml": path.read_text() for number, path in enumerate(rule_files)}
    program = replace(_PROMETHEUS, options=(*_PROMETHEUS.options, *(f"--enable-feature={name}" for name in features)))
    with _serving(program, settings, rules) as server:
        yield server


@contextmanager
def start_alertmanager(config: Mapping[str, Any]) -> Iterator[Server]:
    """Run an Alertmanager with the given configuration (routes and receivers), without a cluster.

    Raises `ServiceUnavailable`.
    """
    with _serving(_ALERTMANAGER, config, {}) as server:
        yield server


@contextmanager
def _serving(program: _Program, config: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[Server]:
    """Run a server with `config`, which names `files` by relative paths."""
    server = Server(f"http://127.0.0.1:{free_port()}")
    files = {**files, "config.yml": yaml.safe_dump(dict(config))}
    if chosen().containers:
        with containers.running(_definition(program, server, files), lambda _: _is_ready(server)):
            yield server
        return
    with scratch_folder(program.service) as folder:
        for name, text in files.items():
            (folder / name).write_text(text)
        command = [_program(*program.names), *_arguments(program, server, str(folder), f"{folder}/data")]
        with running(command, folder / "log", lambda _: _is_ready(server), within_s=30):
            yield server


def definition(service: str, server: Server, files: Mapping[str, str]) -> containers.Definition:
    """Return Prometheus or Alertmanager as a container of the deployed image; its data is in the image's usual place."""
    return _definition(_PROMETHEUS if service == "prometheus" else _ALERTMANAGER, server, files)


def _definition(program: _Program, server: Server, files: Mapping[str, str]) -> containers.Definition:
    command = _arguments(program, server, containers.FOLDER, f"/{program.service}")
    return containers.Definition(containers.deployed_image(program.service), command, files)


def _arguments(program: _Program, server: Server, folder: str, data: str) -> tuple[str, ...]:
    listen = f"--web.listen-address={server.address}"
    return f"--config.file={folder}/config.yml", listen, f"{program.data_option}={data}", *program.options


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
