"""Results of a run: figures with their bounds, as a table for people and as JSON for comparison."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.benchmarks.machine import Machine

_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `key` is its stable name; the bounds are what the project promises."""

    key: str
    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether the bound is kept; None without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        if self.at_most is not None:
            return self.value <= self.at_most
        return None

    @property
    def bound(self) -> str:
        """The bound in words."""
        if self.at_least is not None:
            return f"≥ {readable(self.at_least)}"
        return f"≤ {readable(self.at_most)}" if self.at_most is not None else ""


class Run:
    """Collects figures and writes progress to standard error."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.figures: list[Figure] = []
        self.left_out: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._began = time.monotonic()

    def say(self, words: str) -> None:
        """Write a line of progress."""
        sys.stderr.write(f"[{time.monotonic() - self._began:6.1f} s] {words}\n")
        sys.stderr.flush()

    def add(self, figure: Figure) -> None:
        """Keep a figure and show it at once, because a run takes minutes."""
        self.figures.append(figure)
        self.say(f"    {figure.what}: {readable(figure.value)} {figure.unit} {figure.bound}".rstrip())

    def leave_out(self, section: str, reason: str) -> None:
        """Note that a section cannot be measured here."""
        self.left_out[section] = reason
        self.say(f"    left out: {reason}")

    def fail(self, section: str, reason: str) -> None:
        """Note that a section failed; the others continue."""
        self.failed[section] = reason
        self.say(f"    failed: {reason}")

    def print_table(self) -> None:
        """Print the table to standard output."""
        table = Table(title=f"queuewatch {self.machine.commit} · {self.machine.date}", caption=self.machine.words)
        table.add_column("what")
        table.add_column("value", justify="right")
        table.add_column("unit")
        table.add_column("promised", justify="right")
        table.add_column("")
        marks = {True: "[green]holds[/]", False: "[red]misses[/]", None: ""}
        for figure in self.figures:
            row = (figure.what, readable(figure.value), figure.unit, figure.bound, marks[figure.holds])
            table.add_row(*row)
        for section, reason in self.left_out.items():
            table.add_row(section, "–", "", "", f"left out: {escape(reason)}")
        for section, reason in self.failed.items():
            table.add_row(section, "–", "", "", f"[red]failed[/]: {escape(reason)}")
        Console(width=None if sys.stdout.isatty() else 140).print(table)

    def publish(self, page: Path) -> None:
        """Replace the table between the marks of a Markdown page."""
        before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
        _, mark, after = rest.partition(_END)
        if not mark:
            raise ValueError(f"{page} has no {_BEGIN} … {_END} to put the figures between")
        page.write_text(f"{before}{_BEGIN}\n{self._markdown()}{_END}{after}", encoding="utf-8")

    def _markdown(self) -> str:
        lines = [f"{self.machine.date}, commit {self.machine.commit}: {self.machine.words}.", ""]
        lines += ["| what | value | unit | promised |", "|---|---:|---|---:|"]
        for figure in self.figures:
            verdict = figure.bound if figure.holds is not False else f"{figure.bound} (missed)"
            lines.append(f"| {figure.what.strip()} | {readable(figure.value)} | {figure.unit} | {verdict} |")
        lines += [f"| {section} | – | | left out: {reason} |" for section, reason in self.left_out.items()]
        return "\n".join(lines) + "\n"

    def write_json(self, path: Path) -> None:
        """Write everything as JSON, for programs and for comparison with other runs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "machine": asdict(self.machine),
            "took_s": round(time.monotonic() - self._began, 1),
            "figures": [asdict(figure) | {"holds": figure.holds} for figure in self.figures],
            "left_out": self.left_out,
            "failed": self.failed,
        }
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def readable(value: float) -> str:
    """Format with three significant digits and thousands separators."""
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"
