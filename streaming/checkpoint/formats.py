"""The version of every format in a checkpoint, as its manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.alertmanager.ledger_file import ALERT_LEDGER_VERSION
from streaming.checkpoint.versions import LEDGER_VERSION
from streaming.core.state import upgrades
from streaming.delivery.outbox import OUTBOX_VERSION
from streaming.judge.memory import memory
from streaming.spool.ledger import SPOOL_VERSION

FORMATS: Final[Mapping[str, int]] = {
    "state": upgrades.FORMAT_VERSION,
    "judge": memory.VERSION,
    "versions": LEDGER_VERSION,
    "outbox": OUTBOX_VERSION,
    "alert_book": ALERT_LEDGER_VERSION,
    "spool": SPOOL_VERSION,
}
"""The versions this release writes."""
OLDEST: Final[Mapping[str, int]] = {"state": upgrades.OLDEST_READABLE}
"""The oldest versions this release can read, where that is not 1."""
BEFORE_THEY_WERE_LISTED: Final[Mapping[str, int]] = {"state": 2, "judge": 2}
"""The versions in a checkpoint whose manifest lists none."""


def unreadable(formats: Mapping[str, int]) -> list[str]:
    """Return, in words, which of these formats this release cannot read; empty when it can read all."""
    problems = []
    for name, version in sorted(formats.items()):
        newest = FORMATS.get(name)
        if newest is None:
            problems.append(f"{name}, which this release does not know")
        elif not OLDEST.get(name, 1) <= version <= newest:
            problems.append(f"{name} of version {version} (this release reads {OLDEST.get(name, 1)} to {newest})")
    return problems
