"""Processor time and memory of a process tree, from /proc: what a batch costs, regardless of other load on the machine."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time."""

    jvm_s: float
    python_s: float

    def __add__(self, other: Self) -> Spent:
        return Spent(self.jvm_s + other.jvm_s, self.python_s + other.python_s)

    def __sub__(self, other: Self) -> Spent:
        return Spent(self.jvm_s - other.jvm_s, self.python_s - other.python_s)


def spent_by(root: int) -> Spent:
    """Return what the process `root`, its descendants, and descendants that have ended have used so far.

    Raises `OSError` if there is no /proc.
    """
    jvm_s = python_s = 0.0
    for stat in _tree(root).values():
        if stat.is_java:
            jvm_s += stat.used_s
        else:
            python_s += stat.used_s
    return Spent(jvm_s, python_s)


def memory_of(root: int) -> int:
    """Return the bytes of memory of the process `root` and its descendants; what several share counts once in all."""
    total = 0
    for process in _tree(root):
        try:
            lines = Path("/proc", str(process), "smaps_rollup").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue  # it ended in the meantime
        total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    return total


class _Stat(NamedTuple):
    is_java: bool
    used_s: float
    """User and system time, its own and that of ended children."""


def _tree(root: int) -> dict[int, _Stat]:
    """Return `root` and its living descendants by process id."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    stats: dict[int, _Stat] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended in the meantime
        name, _, rest = stat.partition("(")[2].rpartition(")")
        numbers = rest.split()
        children[int(numbers[1])].append(int(entry))
        stats[int(entry)] = _Stat(name == "java", sum(map(int, numbers[11:15])) / _TICKS_PER_S)
    found: dict[int, _Stat] = {}
    waiting = [root]
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        if process in stats:
            found[process] = stats[process]
    return found
