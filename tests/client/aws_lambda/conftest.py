"""The two Lambda runtimes, each with the wrapper's layer and the test's function."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from queuewatch.aws_lambda.layer import build
from tests.client.aws_lambda.receiver import Receiver, receiver
from tests.client.aws_lambda.runtime_api import Environment, environment
from tests.services.node import find_node, lambda_runtime_client
from tests.services.process import ServiceUnavailable
from tests.services.provider import Services

_APPS = Path(__file__).parent / "apps"


@dataclass(frozen=True)
class Runtime:
    """How to start a function in one language; `layer` is an unpacked layer, as under /opt."""

    name: str
    command: tuple[str, ...]
    layer: Path
    module: str
    log: Path

    @property
    def wrapper(self) -> str:
        """The value of the handler setting with the wrapper."""
        if self.name == "python":
            return "queuewatch.aws_lambda.handler"
        return f"{self.layer}/nodejs/node_modules/queuewatch-lambda/handler.handler"

    def start(
        self, to: str | None, *, own: str = "handler", wrapped: bool = True, freezes: bool = True, **more: str
    ) -> AbstractContextManager[Environment]:
        """Start an environment of the function `own`; with `wrapped=False`, without the layer."""
        name = f"{self.module}.{own}"
        variables = {
            "LAMBDA_TASK_ROOT": str(_APPS),
            "PYTHONPATH": f"{_APPS}{os.pathsep}{self.layer / 'python'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "_HANDLER": self.wrapper if wrapped else name,
            **({"QUEUEWATCH_TO": to} if to else {}),
            **({"QUEUEWATCH_LAMBDA_HANDLER": name} if wrapped else {}),
            **more,
        }
        command = self.command if self.name == "node" else (*self.command, variables["_HANDLER"])
        return environment(command, variables, self.log, freezes=freezes)


@pytest.fixture(scope="session", params=["python", "node"])
def runtime(request: pytest.FixtureRequest, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """Each runtime, with a layer built for it."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(f"lambda-{name}")
    command = services.found(_COMMANDS[name])
    archive = build(name, folder / "layer.zip")
    shutil.unpack_archive(archive, folder / "opt")
    return Runtime(name, command, folder / "opt", "app" if name == "python" else "index", folder / "function.log")


@pytest.fixture
def ingest() -> Iterator[Receiver]:
    """An ingest endpoint."""
    with receiver() as made:
        yield made


def _python() -> tuple[str, ...]:
    if importlib.util.find_spec("awslambdaric") is None:
        raise ServiceUnavailable("awslambdaric is not installed; it exists for Linux only")
    return (sys.executable, "-m", "awslambdaric")


def _node() -> tuple[str, ...]:
    return (find_node().executable, str(lambda_runtime_client()))


_COMMANDS: dict[str, Callable[[], tuple[str, ...]]] = {"python": _python, "node": _node}
