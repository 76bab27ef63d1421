"""Keeps Spark's Python workers from looking for garbage where none is."""

from __future__ import annotations

import gc

_FREEZES = 2
"""Tasks of a process before which its heap is frozen: the modules a task imports on its way are there by the next."""

_left = _FREEZES


def spare_modules() -> None:
    """Called as a task begins. PySpark's daemon collects all garbage after every task, and most of what that walks through,
    a tenth of a second each time, is pandas, pyarrow and the like. What is alive after such a collection is frozen, so
    that the next ones pass it over."""
    global _left
    if _left:
        _left -= 1
        gc.freeze()
