"""What rules ask about a queue: computed once per evaluation, and for a condition since when it has held.

A condition is a pure function of the queue's context. While it holds, the time it began is taken from the memory of the last
evaluation; `remember` stores the times of all conditions that hold after the rules have run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from streaming.judge.context import Context

T = TypeVar("T")


def once(compute: Callable[[Context], T]) -> Callable[[Context], T]:
    """Compute something about a queue once per evaluation, however many rules ask."""

    @functools.wraps(compute)
    def computed(c: Context) -> T:
        # Tens of these are asked for about each queue: one lookup, and the table itself stands for what is not in it.
        results = c.computed
        known = results.get(compute, results)
        if known is results:
            known = results[compute] = compute(c)
        return known  # type: ignore[no-any-return]

    return computed


class Condition:
    """Called with a queue's context, it returns since when it has held without a break; None when it does not hold."""

    def __init__(self, name: str, began: Callable[[Context], int | None]) -> None:
        self.name = name
        self._began = began
        functools.update_wrapper(self, began)

    def __call__(self, c: Context) -> int | None:
        """Return epoch milliseconds or None."""
        # As with `once`: a queue has tens of conditions, and several rules ask for each.
        results = c.computed
        known = results.get(self, results)
        if known is results:
            at = self._began(c)
            known = results[self] = None if at is None else c.memory.since.get(self.name, min(at, c.now))
        return known  # type: ignore[no-any-return]


class Conditions:
    """A condition for each of several parts of a queue. Called with its context, it returns part -> since when it has held."""

    def __init__(self, name: str, began: Callable[[Context], Mapping[str, int]]) -> None:
        self.name = name
        self._began = began
        functools.update_wrapper(self, began)

    def __call__(self, c: Context) -> Mapping[str, int]:
        """Return part -> epoch milliseconds."""
        results = c.computed
        known = results.get(self, results)
        if known is results:
            parts = self._began(c).items()
            known = results[self] = {part: c.memory.since.get(self.key(part), min(at, c.now)) for part, at in parts}
        return known  # type: ignore[no-any-return]

    def key(self, part: str) -> str:
        """Return the name under which one part is remembered."""
        return f"{self.name}:{part}"

    def includes(self, name: str) -> bool:
        """Whether one of its parts is remembered under this name."""
        return name.startswith(self.key(""))


def condition(name: str) -> Callable[[Callable[[Context], int | None]], Condition]:
    """Make a condition of a function that returns when it began, if it holds: the present where that is not known better."""
    return functools.partial(Condition, name)


def conditions(name: str) -> Callable[[Callable[[Context], Mapping[str, int]]], Conditions]:
    """Make conditions of a function that returns part -> when it began, for the parts for which it holds."""
    return functools.partial(Conditions, name)
