"""What a step made is freed when nobody needs it, without the garbage collector: it is paused while a batch is judged."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from tests.judge.driving import judged
from tests.judge.memory.test_memory import everything


@pytest.mark.simulation
def test_steps_leave_no_cyclic_garbage() -> None:
    """The reports of a hundred thousand queues take a gigabyte: those of every step were kept until a collection happened."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        said = judged(everything()[:60])
        assert said.changes
        assert all(queue.messages is not None for snapshot in said.snapshots for queue in snapshot.queues)
        del said
        gc.collect()
        ours = Counter(type(o).__name__ for o in gc.garbage if type(o).__module__.startswith("streaming."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours
