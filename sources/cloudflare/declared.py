"""The queue settings that all Wrangler files declare together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sources.cloudflare.settings import Consumer
from sources.cloudflare.wrangler import read_wrangler


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations by queue name; if two files name one queue, the later file wins."""

    consumers: dict[str, Consumer] = field(default_factory=dict)
    delivery_delays_s: dict[str, float] = field(default_factory=dict)


def read_declared(paths: Iterable[Path], environment: str | None) -> Declared:
    """Read all files. Raises `WranglerError`."""
    declared = Declared()
    for path in paths:
        found = read_wrangler(path, environment)
        declared.consumers.update(found.consumers)
        declared.delivery_delays_s.update(found.delivery_delays_s)
    return declared
