"""Telemetry in a spool folder, as its readers find it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def spooled(folder: Path) -> list[dict[str, Any]]:
    """Return the events of all complete files, in the order of the files' names."""
    return [json.loads(line) for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().splitlines()]
