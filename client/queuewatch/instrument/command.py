"""The command `queuewatch-instrument`: puts a folder first on PYTHONPATH, then executes the application's command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from queuewatch.environment import CONSUMER_VARIABLE, DISABLED_VARIABLE, TO_VARIABLE, is_disabled
from queuewatch.transports import open_transport

_PATH: Final = str(Path(__file__).with_name("path"))
_NAME: Final = "queuewatch-instrument"
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""The exit codes that a shell uses for these."""
_HIDES_OURS: Final = frozenset(("opentelemetry-instrument",))
"""Commands that put a `sitecustomize` of their own before ours, which unlike ours does not run the one that it shadows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process with the command; returns an exit code only if that is not possible.

    If telemetry cannot be set up, one line is printed on standard error, and the application still runs.
    """
    given = _parser().parse_args(arguments)
    for variable, value in ((TO_VARIABLE, given.to), (CONSUMER_VARIABLE, given.consumer)):
        if value is not None:
            os.environ[variable] = value
    if not is_disabled():
        problem = _problem(os.environ.get(TO_VARIABLE), TO_VARIABLE if given.to is None else "--to")
        if problem:
            _say(f"{problem}; {given.command} runs unwatched")
        else:
            _inject()
            if os.path.basename(given.command) in _HIDES_OURS:
                _say(f"{given.command} hides this, nothing is watched; the other way round both work: {given.command} {_NAME} …")
    try:
        os.execvp(given.command, [given.command, *given.arguments])  # noqa: S606 -- the command that the user gave
    except FileNotFoundError:
        _say(f"{given.command}: command not found")
        return _NOT_FOUND
    except OSError as error:
        _say(f"{given.command}: {error.strerror}")
        return _NOT_EXECUTABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_NAME,
        description="Run a Python program, and watch every SQS client that it and its child processes make.",
        epilog=f"Settings by environment: {TO_VARIABLE}, {CONSUMER_VARIABLE}, QUEUEWATCH_SCOPE, QUEUEWATCH_EXIT_DEADLINE_S, "
        f"QUEUEWATCH_TOKEN[_FILE], QUEUEWATCH_KAFKA_USERNAME, QUEUEWATCH_KAFKA_PASSWORD[_FILE]; "
        f"{DISABLED_VARIABLE}=1 watches nothing.",
    )
    parser.add_argument("--to", metavar="URL", help=f"where telemetry goes, as in {TO_VARIABLE}: kafka://broker:9092/topic, …")
    parser.add_argument("--consumer", metavar="NAME", help="this process's name; default: host and process id")
    parser.add_argument("command", metavar="COMMAND", help="the program, such as python, gunicorn or celery")
    rest = parser.add_argument("arguments", metavar="ARG", nargs=argparse.REMAINDER, help="its arguments, if any")
    rest.required = False  # argparse would list it as missing where the command is
    return parser


def _problem(to: str | None, given_as: str) -> str | None:
    if not to:
        return f"{given_as} is {'not set' if to is None else 'empty'}"
    try:
        open_transport(to)
    except ValueError as error:
        return f"{given_as}: {error}"
    return None


def _inject() -> None:
    """Prepend to PYTHONPATH: Python runs the first `sitecustomize` it finds, and ours runs the next one."""
    there = os.environ.get("PYTHONPATH")
    folders = [folder for folder in there.split(os.pathsep) if folder != _PATH] if there else []
    os.environ["PYTHONPATH"] = os.pathsep.join([_PATH, *folders])


def _say(words: str) -> None:
    print(f"{_NAME}: {words}", file=sys.stderr, flush=True)
