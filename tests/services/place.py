"""Brokers, Prometheus and Alertmanager run in containers if a Docker engine is usable, otherwise as local processes."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from docker.errors import DockerException
from testcontainers.core.docker_client import DockerClient

VARIABLE = "QUEUEWATCH_TEST_SERVICES"
"""`containers` or `processes`; with any other value, or none, the machine decides."""


class NoEngine(Exception):
    """No Docker engine is usable from here, for the given reason."""


@dataclass(frozen=True)
class Place:
    """Whether services run in containers, and why."""

    containers: bool
    reason: str

    def __str__(self) -> str:
        """The text that a test run prints about it."""
        return f"{'containers' if self.containers else 'local processes'} ({self.reason})"


def choose(asked: str, engine: Callable[[], str]) -> Place:
    """Choose containers if `engine` returns its name; `asked` is the value of `VARIABLE`.

    Raises `NoEngine` if containers were requested and there is no engine.
    """
    if asked == "processes":
        return Place(False, f"{VARIABLE}={asked}")
    try:
        return Place(True, engine())
    except NoEngine as none:
        if asked == "containers":
            raise
        return Place(False, str(none))


@functools.cache
def chosen() -> Place:
    """Return the place for this run. The engine is asked once."""
    return choose(os.environ.get(VARIABLE, ""), docker_engine)


def docker_engine() -> str:
    """Return the name and version of this machine's Docker engine. Raises `NoEngine`.

    The services share the machine's loopback interface: Kafka advertises the address that tests use, and Prometheus scrapes
    what tests serve. Therefore the engine must run on this machine, not in a virtual machine or elsewhere.
    """
    try:
        client = DockerClient(timeout=10).client
        engine = client.info()
    except DockerException as error:
        raise NoEngine("no Docker engine answers") from error
    system = engine.get("OperatingSystem", "an unknown system")
    if not str(client.api.base_url).startswith("http+docker://"):
        raise NoEngine("the Docker engine runs on another machine")
    if "Docker Desktop" in system:
        raise NoEngine("Docker Desktop's engine runs in a virtual machine")
    return f"Docker {engine.get('ServerVersion', '?')} on {system}"
