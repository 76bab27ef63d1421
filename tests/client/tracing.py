"""Interrupts the library at a chosen line, as another thread or a signal handler may do at any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def before_each_line(act: Callable[[], object], *files: str) -> Iterator[None]:
    """Call `act` before each line that this thread executes in the block, in functions of files whose paths contain a name."""
    within = False

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal within
        if not any(name in frame.f_code.co_filename for name in files):
            return None
        if event == "line" and not within:
            within = True
            try:
                act()
            finally:
                within = False
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(former)
