"""What is promised exists: every `queuewatch …` in pages, help, messages and shipped files is parsed with its arguments."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from sources.collect import KINDS
from streaming.cli.main import app
from tests.docs.promises import ROOT, Promise, promises, shipped_files, spelled_out

ROOT_COMMAND: Any = typer.main.get_command(app)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|\{[^}]*\}")


def commands(command: Any, path: str = "queuewatch") -> Iterator[tuple[str, Any]]:
    """Every command and group, by its whole name."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


def promised() -> list[Promise]:
    """Everywhere the project speaks of its commands."""
    found: dict[str, Promise] = {}
    for file in shipped_files():
        for promise in promises("queuewatch", file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))):
            found.setdefault(str(promise), promise)
    for path, command in commands(ROOT_COMMAND):
        texts = [command.help or "", *(getattr(param, "help", None) or "" for param in command.params)]
        for promise in promises("queuewatch", "\n".join(texts), f"{path} --help"):
            found.setdefault(str(promise), promise)
    return list(found.values())


@cache
def shown_adapters() -> dict[str, str]:
    """The kinds that the page on adapters adds with a package of its own, which `test_adapters_page` installs."""
    [entry_points] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "adapters.md").read_text(), re.DOTALL)
    shown: dict[str, str] = tomllib.loads(entry_points)["project"]["entry-points"]["queuewatch.collectors"]
    return shown


def complaint(words: list[str], *, complete: bool) -> str | None:
    """What the program would say of a command line before it does anything; None when it would begin."""
    command, path = ROOT_COMMAND, "queuewatch"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"there is no command `{path} {words[0]}`"
        path, command, words = f"{path} {words[0]}", command.commands[words[0]], words[1:]
    if hasattr(command, "commands"):
        return None if not complete or words else f"{path} needs a command"
    try:
        context = command.make_context(path, _filled(words, command), resilient_parsing=False)
    except SystemExit:
        return None  # --help
    except Exception as error:
        if type(error).__name__ == "Exit":
            return None
        if type(error).__name__ == "MissingParameter" and not complete:
            return None
        return f"{path}: {getattr(error, 'message', '') or error}"
    kind = context.params.get("kind")
    if kind is not None and kind not in {*KINDS, *shown_adapters()} and not _PLACEHOLDER.fullmatch(kind):
        return f"{path}: there is no kind {kind}"
    return None


def _filled(words: list[str], command: Any) -> list[str]:
    """Placeholders that stand for an option's value become a value the option takes."""
    defaults = {name: param.default for param in command.params for name in param.opts}
    filled = list(words)
    for position, word in enumerate(words[1:], start=1):
        default = defaults.get(words[position - 1])
        if _PLACEHOLDER.fullmatch(word) and default is not None:
            filled[position] = str(getattr(default, "value", default))
    return filled


@pytest.mark.parametrize("promise", promised(), ids=str)
def test_a_promised_command_is_understood(promise: Promise) -> None:
    """The program's own parser reads it: commands, arguments, options and their values."""
    for words in spelled_out(promise.text):
        assert complaint(words, complete=promise.complete) is None, f"{promise.where}: queuewatch {' '.join(words)}"


@pytest.mark.parametrize(
    ("text", "complete", "says"),
    [
        ("doctor rabbitmq", False, "there is no command `queuewatch doctor rabbitmq`"),
        ("docter sqs", False, "there is no command `queuewatch docter`"),
        ("doctor sqs|activemq|kafka", False, "there is no command `queuewatch doctor kafka`"),
        ("collect rabbitmq --config FILE", False, "there is no kind rabbitmq"),
        ("run --confg FILE", False, "No such option"),
        ("run --config FILE extra", False, "unexpected extra argument"),
        ("demo --port many", False, "valid integer"),
        ("doctor sqs --fail-on dire", False, "is not one of"),
        ("replay FILE [--engine local|fast]", False, "is not one of"),
        ("run", True, "Missing parameter: config"),
        ("doctor", True, "needs a command"),
    ],
)
def test_a_promise_that_does_not_hold_is_found(text: str, complete: bool, says: str) -> None:
    """Or the test above would be one that cannot fail."""
    complaints = [complaint(words, complete=complete) for words in spelled_out(text)]
    assert any(says in (found or "") for found in complaints), complaints


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("demo [--for 90s]", [["demo", "--for", "90s"], ["demo"]]),
        (
            "replay FILE… [--engine local|spark]",
            [["replay", "FILE", "--engine", "local"], ["replay", "FILE", "--engine", "spark"], ["replay", "FILE"]],
        ),
        ("rules --out 'a b'", [["rules", "--out", "a b"]]),
    ],
)
def test_notations_are_spelled_out(text: str, lines: list[list[str]]) -> None:
    """Optional parts with and without, every alternative."""
    assert spelled_out(text) == lines


def test_promises_are_found_where_they_are_made() -> None:
    """In shell blocks with comments and redirections, between backticks, behind a pipe."""
    text = "Say `queuewatch run --config FILE`:\n```sh\n$ A=1 bin/queuewatch replay x > out   # why\n```\n"
    text += "zcat x | queuewatch replay -\n"
    found = [(promise.text, promise.complete) for promise in promises("queuewatch", text, "page")]
    assert found == [("replay x", True), ("run --config FILE", False), ("replay -", True)]
    places = {promise.where for promise in promised()}
    assert {"README.md", "docs/runbook.md", "docs/deploying.md", "streaming/cli/collecting.py"} <= places


READERS_OWN = {"app.py", "celery"}
"""What the reader of a page has, not the checkout."""


@pytest.mark.parametrize(
    ("where", "module"),
    sorted(
        {
            (str(file.relative_to(ROOT)), module)
            for file in shipped_files()
            if file.suffix == ".md"
            for module in re.findall(r"python3? -m ([\w.]+)", file.read_text(encoding="utf-8"))
            if module not in READERS_OWN
        }
    ),
)
def test_a_module_to_run_exists(where: str, module: str) -> None:
    """`python -m …`."""
    assert importlib.util.find_spec(module) is not None, where


@pytest.mark.parametrize(
    ("where", "script"),
    sorted(
        {
            (str(file.relative_to(ROOT)), script)
            for file in shipped_files()
            if file.suffix == ".md"
            for script in re.findall(r"python3? ([\w/]+\.py)", file.read_text(encoding="utf-8"))
            if script not in READERS_OWN
        }
    ),
)
def test_a_script_to_run_exists(where: str, script: str) -> None:
    """`python PATH`."""
    assert (ROOT / script).is_file() or (Path(where).parent / script).is_file(), where
