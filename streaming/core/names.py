"""Numbers for the names of groups and consumers, queue by queue."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streaming.core.columns import Array, distinct


@dataclass(slots=True)
class Names:
    """Groups or consumers of queues: (queue index, name) -> number, and a time for each."""

    queue: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    time: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    index: dict[tuple[int, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.name)

    def number(self, queue: int, name: str) -> int:
        """The number of a name, given to it now if it is new."""
        found = self.index.get((queue, name))
        if found is None:
            found = self.index[queue, name] = len(self.name)
            self.queue.append(queue)
            self.name.append(name)
        return found

    def numbers(self, queue: Array, index: Array, words: list[str]) -> Array:
        """The numbers of whole columns: per row a queue and an index into `words`, -1 for none."""
        out = np.full(len(index), -1, dtype=np.int32)
        told = np.flatnonzero(index >= 0)
        if len(told):
            width = len(words)
            owner = queue[told].astype(np.int64)
            pairs, place = distinct(owner * width + index[told], (int(owner.max()) + 1) * width)
            names = [(pair // width, words[pair % width]) for pair in pairs.tolist()]
            known = self.index.get
            numbers = [self.number(*name) if (found := known(name)) is None else found for name in names]
            out[told] = np.array(numbers, dtype=np.int32)[place]
        self.grow()
        return out

    def grow(self) -> None:
        """Give every new name its (empty) time."""
        if len(self.time) < len(self.name):
            self.time = np.concatenate([self.time, np.zeros(len(self.name) - len(self.time), dtype=np.int64)])

    def keep(self, used: Array) -> Array:
        """Drop the names where `used` is False; returns the new number of every old one, -1 for the dropped."""
        moved = np.full(len(used) + 1, -1, dtype=np.int32)
        kept = np.flatnonzero(used)
        moved[kept] = np.arange(len(kept))
        self.queue = [self.queue[i] for i in kept]
        self.name = [self.name[i] for i in kept]
        self.time = self.time[kept]
        self.index = {pair: i for i, pair in enumerate(zip(self.queue, self.name, strict=True))}
        return moved
