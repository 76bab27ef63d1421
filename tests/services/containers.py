"""A service in a container: started by testcontainers, ready according to its log, removed at the end."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import yaml
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer

from tests.services.process import ServiceUnavailable

Ready = TypeVar("Ready")

FOLDER = "/queuewatch"
"""The folder with a definition's files inside the container."""
_DEPLOY = Path(__file__).parents[2] / "deploy"


@dataclass(frozen=True)
class Definition:
    """The definition of a container. It uses the machine's network, like a local process."""

    image: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by file name; the files are in `FOLDER`."""
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] | None = None
    """None: the image's own entry point."""


def container(definition: Definition) -> DockerContainer:
    """Return the container, not yet created. Needs a Docker engine."""
    made = DockerContainer(definition.image, env=dict(definition.env)).with_command(list(definition.command))
    for name, text in definition.files.items():
        made.with_copy_into_container(text.encode(), f"{FOLDER}/{name}")
    entrypoint = {"entrypoint": list(definition.entrypoint)} if definition.entrypoint else {}
    return made.with_kwargs(network="host", **entrypoint)


@contextmanager
def running(definition: Definition, ready: Callable[[str], Ready | None], *, within_s: float = 120) -> Iterator[Ready]:
    """Run the container while the block runs, as `process.running` does for a process.

    Raises `ServiceUnavailable`, with the last lines of the log, if it cannot be started, ends early or is not ready `within_s`.
    """
    made = container(definition)
    try:
        made.start()
    except (DockerException, OSError) as error:
        made.stop()
        raise ServiceUnavailable(f"{definition.image} cannot be started: {error}") from error
    try:
        yield _wait(made, definition.image, ready, within_s)
    finally:
        made.stop()


def _wait(made: DockerContainer, image: str, ready: Callable[[str], Ready | None], within_s: float) -> Ready:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if (answer := ready(_log(made))) is not None:
            return answer
        made.reload()
        if made.status not in ("created", "running"):
            raise ServiceUnavailable(f"{image} ended: {_last_lines(made)}")
        time.sleep(0.2)
    raise ServiceUnavailable(f"{image} was not ready within {within_s:.0f} s: {_last_lines(made)}")


def _log(made: DockerContainer) -> str:
    return "".join(part.decode(errors="replace") for part in made.get_logs())


def _last_lines(made: DockerContainer) -> str:
    return " | ".join(_log(made).splitlines()[-8:]) or "it logged nothing"


@functools.cache
def deployed_image(service: str) -> str:
    """Return the image of a service in `deploy/compose.yaml`."""
    return str(yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"][service]["image"])


@functools.cache
def jar_version(pom: str, artifact: str) -> str:
    """Return the version of `artifact` in `deploy/jars/POM.xml`: container and local process are of the same release."""
    for dependency in ElementTree.parse(_DEPLOY / "jars" / f"{pom}.xml").iter("dependency"):
        if dependency.findtext("artifactId") == artifact:
            return str(dependency.findtext("version"))
    raise LookupError(f"{pom}.xml has no {artifact}")
