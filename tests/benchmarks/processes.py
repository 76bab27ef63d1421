"""Processor time of a process tree, from /proc: what a batch costs, regardless of other load on the machine."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

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
    children: defaultdict[int, list[int]] = defaultdict(list)
    used: dict[int, tuple[bool, float]] = {}
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
        # Own user and system time, and that of ended children.
        used[int(entry)] = (name == "java", sum(map(int, numbers[11:15])) / _TICKS_PER_S)
    jvm_s = python_s = 0.0
    waiting = [root]
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        is_java, seconds = used.get(process, (False, 0.0))
        if is_java:
            jvm_s += seconds
        else:
            python_s += seconds
    return Spent(jvm_s, python_s)
