"""Pause the garbage collector during a batch, and keep it away from what batches leave behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COLLECTED_EVERY: Final = 60
"""Batches. Garbage that other threads make during a batch, such as a closed connection with the body of its last request, is
frozen with it and stays until then: at one batch a second, for a minute."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection inside the block.

    A batch creates tens of thousands of objects, and hardly any of them are garbage. Repeated collections over all of them took
    up to half of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class BatchHeap:
    """What batches leave behind in the driver: evaluations, summaries and views, which only reference counts free.

    Collections after and between the batches went over all of it and found nothing: with ten thousand queues, for a fifth of the
    processor time of a step. So it is frozen. A cycle may have been frozen with it, so all of it is collected now and then.
    """

    def __init__(self, collected_every: int = COLLECTED_EVERY) -> None:
        self._collected_every = collected_every
        self._batches = 0

    def freeze(self) -> None:
        """Call at the end of each batch, while collection is still paused: it would begin as soon as it goes on."""
        if self._batches % self._collected_every == 0:
            # What was frozen before the first batch are modules. A batch that failed may have left a cycle of its reports.
            if self._batches:
                gc.unfreeze()
            gc.collect()
        gc.freeze()
        self._batches += 1
