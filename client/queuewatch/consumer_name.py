"""The name under which this process reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import lru_cache

from queuewatch.arguments import LONGEST_NAME
from queuewatch.environment import CONSUMER_VARIABLE
from queuewatch.log import log_warning


def consumer_name(given: str | None) -> Callable[[], str]:
    """Return a function that returns the name: `given`, that of the environment, or host and process id."""
    given = given or name_of_environment(CONSUMER_VARIABLE)
    if given:
        return lambda: given
    host = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or socket.gethostname()
    names: dict[int, str] = {}

    def name() -> str:
        process = os.getpid()  # changes after a fork
        if process not in names:
            names[process] = f"{host}/{process}"
        return names[process]

    return name


def name_of_environment(variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name in a variable, cut to what the service accepts: a typo must not stop the application."""
    found = environment.get(variable, "")
    usable = found[:LONGEST_NAME].encode(errors="replace").decode()
    if usable != found:
        _warn(f"{variable} is longer than {LONGEST_NAME} characters or no valid UTF-8: {usable!r} is reported")
    return usable


@lru_cache(maxsize=2)
def _warn(words: str) -> None:
    log_warning("%s", words)  # once, for a process may watch many clients
