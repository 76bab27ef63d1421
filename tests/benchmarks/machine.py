"""The machine that the figures were measured on; figures are meaningless without it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

from streaming.spark.runtime import RuntimeUnavailable, find_java


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, the programs and the commit."""

    date: str
    commit: str
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    java: str
    spark: str
    load_before: float
    """Load average (1 min) at the start: well below `cores`, or the figures include other load."""

    @classmethod
    def here(cls) -> Self:
        """Describe this machine now."""
        try:
            found = find_java()
            java = f"{found.version} ({found.origin})"
        except RuntimeUnavailable:
            java = "none"
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            commit=_commit(),
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            java=java,
            spark=version("pyspark"),
            load_before=round(os.getloadavg()[0], 2),
        )

    @property
    def words(self) -> str:
        """One line for below the table."""
        return (
            f"{self.cores} × {self.processor}, {self.memory_gib} GiB, {self.system}, Python {self.python}, "
            f"Java {self.java}, Spark {self.spark}, load before {self.load_before}"
        )


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
        return done.stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    return commit + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def _processor() -> str:
    try:
        reported = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="ascii"))
    except OSError:
        reported = None
    return reported[1] if reported else platform.processor() or platform.machine()
