"""When not to look for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collecting() -> Iterator[None]:
    """While a batch is worked on, objects are made by the tens of thousands, hardly any of them garbage. Looking for some among
    all of them, again and again, took up to half of the time; it is looked for after the block."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
