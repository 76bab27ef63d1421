"""The version of every form a checkpoint holds, as its manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.alertmanager.remembered import BOOK_VERSION
from streaming.core.state import upgrades
from streaming.judge import memory
from streaming.spark.outbox import OUTBOX_VERSION
from streaming.spark.versions import LEDGER_VERSION
from streaming.spool.ledger import SPOOL_VERSION

FORMATS: Final[Mapping[str, int]] = {
    "state": upgrades.FORMAT_VERSION,
    "judge": memory.VERSION,
    "versions": LEDGER_VERSION,
    "outbox": OUTBOX_VERSION,
    "alert_book": BOOK_VERSION,
    "spool": SPOOL_VERSION,
}
"""What this release writes."""
OLDEST: Final[Mapping[str, int]] = {"state": upgrades.OLDEST_READABLE}
"""The oldest this release still reads, where that is not 1."""
BEFORE_THEY_WERE_LISTED: Final[Mapping[str, int]] = {"state": 2, "judge": 2}
"""What a checkpoint holds whose manifest lists none."""


def unreadable(formats: Mapping[str, int]) -> list[str]:
    """What of a checkpoint with these formats this release cannot read, in words; empty when it can read all."""
    problems = []
    for name, version in sorted(formats.items()):
        newest = FORMATS.get(name)
        if newest is None:
            problems.append(f"{name}, which this release does not know")
        elif not OLDEST.get(name, 1) <= version <= newest:
            problems.append(f"{name} of version {version} (this release reads {OLDEST.get(name, 1)} to {newest})")
    return problems
