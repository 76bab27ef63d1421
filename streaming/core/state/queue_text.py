"""The names and attributes of queues as stored text.

Both repeat from batch to batch and from queue to queue, so parsing is cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streaming.core.columns import Array
from streaming.core.settings import QueueName
from streaming.core.state.queues import READ_ATTRIBUTES, Reported
from streaming.core.text_cache import cached


@dataclass(frozen=True, slots=True)
class SharedTexts:
    """A text per queue. Queues made from one template have the same."""

    of: Array
    """Per queue, the place of its text among `texts`."""
    texts: list[bytes]

    @classmethod
    def shared(cls, texts: Iterable[bytes]) -> SharedTexts:
        """Build them from a text per queue."""
        distinct: dict[bytes, int] = {}
        of = np.array([distinct.setdefault(text, len(distinct)) for text in texts], dtype=np.int32)
        return cls(of, list(distinct))

    def text(self, place: int) -> bytes:
        """Return one queue's text."""
        return self.texts[int(self.of[place])]

    def all(self) -> list[bytes]:
        """Return a text per queue."""
        return [self.texts[i] for i in self.of.tolist()]

    def containing(self, part: bytes) -> Array:
        """Return which queues' texts contain these bytes."""
        found: Array = np.fromiter((part in text for text in self.texts), dtype=bool, count=len(self.texts))[self.of]
        return found

    def hashes(self) -> Array:
        """Return a hash of each queue's text, the same only within this process."""
        return np.fromiter(map(hash, self.texts), dtype=np.int64, count=len(self.texts))[self.of]


_DEAD_LETTER_QUEUE = re.compile(rb'"dead_letter_queue":\s*\[\s*-?\d+,\s*("(?:[^"\\]|\\.)*")')


def may_name_dead_letter_queue(texts: SharedTexts, names: Set[str]) -> Array:
    """Return which queues may have one of these as their dead-letter queue, by their attributes, which are not parsed.

    It leaves out no queue that has, and few others remain: another attribute may contain the same.
    """
    wanted = {_encoder.encode(name).encode() for name in names}
    found = [not wanted.isdisjoint(_DEAD_LETTER_QUEUE.findall(text)) for text in texts.texts]
    result: Array = np.array(found, dtype=bool)[texts.of]
    return result


@lru_cache(maxsize=8)
def read_names(packed: bytes) -> tuple[tuple[QueueName, ...], dict[QueueName, int]]:
    """Parse the names of `packed_names`, with each one's index. The dictionary is shared: callers must not change it."""
    # A worker unpacks the same names in every batch.
    names = tuple(QueueName(*name) for name in json.loads(packed))
    return names, {name: place for place, name in enumerate(names)}


def write_attributes(attributes: dict[str, Reported], last_state_at: int) -> bytes:
    """Return the attributes as JSON, with time 0 for those of the latest queue_state: most states repeat the one before."""
    return _encoder.encode({name: (0 if at == last_state_at else at, value) for name, (at, value) in attributes.items()}).encode()


def fitting(attributes: Mapping[str, Reported], most_bytes: int) -> dict[str, Reported]:
    """Return the attributes that take at most so many bytes as JSON: those that are read, shortest first, then the latest."""
    sizes = {name: len(_encoder.encode({name: reported})) for name, reported in attributes.items()}
    read_first = sorted(
        attributes,
        key=lambda name: (name not in READ_ATTRIBUTES, sizes[name] if name in READ_ATTRIBUTES else -attributes[name].at, name),
    )
    kept, room = set(), most_bytes
    for name in read_first:
        if sizes[name] <= room:
            kept.add(name)
            room -= sizes[name]
    return {name: reported for name, reported in attributes.items() if name in kept}


def report_text(attributes: dict[str, Any]) -> str:
    """Return the attributes of one event as `write_attributes` writes those of a queue that reports no others."""
    return _encoder.encode({name: (0, value) for name, value in attributes.items()})


def read_report(text: str) -> dict[str, Any]:
    """Parse the text of `report_text`."""
    return {name: value for name, (_, value) in _read_attributes(text.encode()).items()}


# A shared encoder: `json.dumps` creates a new one per call, and there are thousands.
_encoder = json.JSONEncoder(separators=(",", ":"))


@cached(maxsize=4096)
def _read_attributes(text: bytes) -> dict[str, tuple[int, Any]]:
    # Queues created from one template have the same attributes. The dictionary is shared: callers must not change it.
    return {name: (at, value) for name, (at, value) in json.loads(text).items()}


def read_attributes(text: bytes, last_state_at: int) -> dict[str, Reported]:
    """Parse the text of `write_attributes`."""
    return {name: Reported(at or last_state_at, value) for name, (at, value) in _read_attributes(text).items()}
