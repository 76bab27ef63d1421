"""Reading `/metrics`."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from typing import Final

_SAMPLE: Final = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_OF_A_QUEUE: Final = frozenset({"system", "scope_id", "queue"})
_ACCEPTED: Final = re.compile(r'^queuewatch_events_total\{result="accepted"\} (\S+)$', re.MULTILINE)


def page(url: str) -> str:
    """Return the text of `/metrics` below `url`. Raises `OSError` if the server does not answer."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def totals(text: str) -> Mapping[str, float]:
    """Return every sample by name and labels, summed over systems, scopes and queues."""
    found: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        own = [f'{key}="{word}"' for key, word in _LABEL.findall(labels) if key not in _OF_A_QUEUE]
        key = name + (f"{{{','.join(own)}}}" if own else "")
        found[key] = found.get(key, 0.0) + float(value)
    return found


def accepted(text: str) -> int:
    """Return the count of accepted events without parsing the rest; 0 if it is missing."""
    reported = _ACCEPTED.search(text)
    return int(float(reported[1])) if reported else 0
