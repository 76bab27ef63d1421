"""Every command that the project promises: in its pages, its help, its messages and the files it ships."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

SHELL = ("sh", "bash", "shell", "console")
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_PROMISED_BY = ("*.md", "*.py", "*.html", "*.js", "*.mjs", "*.yaml", "*.yml", "*.xml", "*.libsonnet", "Makefile", "*Dockerfile*")
_OWN_CHECKS = "tests/"
_END = re.compile(r"\s(?:[|>&;]|\d>|#)|[)\"']?\s*$")


@dataclass(frozen=True)
class Promise:
    """A command as it is written somewhere."""

    where: str
    text: str
    """What follows the program's name."""
    complete: bool
    """Whether it is there to be copied, so that nothing it needs may be left out."""

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def shipped_files() -> list[Path]:
    """Every text file under version control that speaks to a user, but the tests."""
    listed = subprocess.run(["git", "ls-files", "--", *_PROMISED_BY], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if not name.startswith(_OWN_CHECKS) and (ROOT / name).exists()]


def promises(program: str, text: str, where: str) -> Iterator[Promise]:
    """The commands of `program` in a text: in shell blocks, between backticks, and behind a pipe."""
    for found in _FENCE.finditer(text):
        if found[2] in SHELL:
            for line in found[3].replace("\\\n", " ").splitlines():
                started = re.match(rf"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?{program} (.+)", line.strip())
                if started:
                    yield Promise(where, _END.split(started[1])[0], complete=True)
    prose = _FENCE.sub("", text)
    for span in re.findall(rf"`{program} ([^`\n]+)`", prose):
        yield Promise(where, span.replace("\\|", "|"), complete=False)
    # With an option or a minus, or it is a sentence in a table.
    for piped in re.findall(rf"\| {program} ((?:[a-z-]+ )*-[^`\n\"']*)", prose):
        yield Promise(where, _END.split(piped)[0], complete=True)


def spelled_out(text: str) -> list[list[str]]:
    """The command lines a notation stands for: `[optional]` with and without, `a|b` each, `FILE…` once."""
    with_all = re.sub(r"[\[\]]", "", text)
    without = re.sub(r"\[[^\]]*\]", "", text)
    found: list[list[str]] = []
    for line in dict.fromkeys((with_all, without)):
        words = [word.rstrip("…").removesuffix("...") for word in shlex.split(line)]
        choices = [word.split("|") if "|" in word else [word] for word in words if word]
        found += [list(chosen) for chosen in itertools.product(*choices)]
    return found
