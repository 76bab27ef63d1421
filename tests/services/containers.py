"""A service in a container: started by testcontainers, waited for by its log, removed at the end."""

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
"""Where the files of a definition are, inside."""
_DEPLOY = Path(__file__).parents[2] / "deploy"


@dataclass(frozen=True)
class Definition:
    """What a container is made of. It uses the machine's network, as a local process would."""

    image: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by name; the file is in `FOLDER`."""
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] | None = None
    """None: the image's own."""


def container(definition: Definition) -> DockerContainer:
    """The container, not yet created. Needs an engine."""
    made = DockerContainer(definition.image, env=dict(definition.env)).with_command(list(definition.command))
    for name, text in definition.files.items():
        made.with_copy_into_container(text.encode(), f"{FOLDER}/{name}")
    entrypoint = {"entrypoint": list(definition.entrypoint)} if definition.entrypoint else {}
    return made.with_kwargs(network="host", **entrypoint)


@contextmanager
def running(definition: Definition, ready: Callable[[str], Ready | None], *, within_s: float = 120) -> Iterator[Ready]:
    """The container while the block lasts, as `process.running` is for a process.

    Raises `ServiceUnavailable`, with the last lines of the log, when it cannot be started, ends early or is not ready `within_s`.
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
    """The image of a service in `deploy/compose.yaml`."""
    return str(yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"][service]["image"])


@functools.cache
def jar_version(pom: str, artifact: str) -> str:
    """The version of `artifact` in `deploy/jars/POM.xml`: the container is of the same release as the local process."""
    for dependency in ElementTree.parse(_DEPLOY / "jars" / f"{pom}.xml").iter("dependency"):
        if dependency.findtext("artifactId") == artifact:
            return str(dependency.findtext("version"))
    raise LookupError(f"{pom}.xml has no {artifact}")
