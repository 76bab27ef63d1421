"""A Python worker is prepared as its first tasks begin: its modules are frozen, and it ends quietly without Java."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sources.wire import decode_records
from streaming.checkpoint.state_files import InlineState
from streaming.core.track import track
from streaming.spark import decode, internals, stateful_shard
from streaming.spark.internals import prepare_worker
from tests.streaming.spark.packets import T0, event, ndjson
from tests.streaming.spark.test_stateful_shard import State, frame, run


@pytest.fixture(autouse=True)
def _new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(internals, "_freezes_left", 2)
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)  # restored after the test
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    ("error", "printed"),
    [(BrokenPipeError(32, "Broken pipe"), False), (ConnectionResetError(), False), (ValueError("what"), True)],
)
def test_only_a_closed_socket_is_not_printed(error: Exception, printed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """PySpark's daemon prints a worker's exceptions through this function."""
    prepare_worker()
    try:
        raise error
    except Exception:
        traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == printed


def _collectable(objects: Sequence[object]) -> int:
    """Return how many of `objects` a garbage collection examines; `gc` does not list frozen ones.

    They are counted one by one: the number of all frozen objects drops whenever another thread frees something.
    """
    listed = {id(found) for found in gc.get_objects()}
    return sum(id(one) in listed for one in objects)


def test_the_heap_is_frozen_before_the_first_two_tasks_only() -> None:
    """The first task's imports exist at the second task; objects of later tasks must be collectable."""
    loaded = [[n] for n in range(1_000)]
    assert _collectable(loaded) == len(loaded)
    prepare_worker()
    imported = [[n] for n in range(1_000)]
    assert (_collectable(loaded), _collectable(imported)) == (0, len(imported))
    prepare_worker()
    later = [[n] for n in range(1_000)]
    assert (_collectable(imported), _collectable(later)) == (0, len(later))
    prepare_worker()
    assert (_collectable(imported), _collectable(later)) == (0, len(later))


def _unprepared() -> None:
    """The function that a new worker starts with."""


def test_both_stages_prepare_their_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stage a worker runs prepares it, and garbage collection is paused while a stage works."""
    collecting: list[bool] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            collecting.append(gc.isenabled())
            return work(*arguments)

        return noted

    monkeypatch.setattr(decode, "decode_records", noting(decode_records))
    monkeypatch.setattr(stateful_shard, "track", noting(track))
    monkeypatch.setattr(traceback, "print_exc", _unprepared)
    packets = frame((ndjson(event("sent", "m", T0)), T0))
    assert traceback.print_exc is not _unprepared
    monkeypatch.setattr(traceback, "print_exc", _unprepared)
    run(State(), InlineState(), packets)
    assert traceback.print_exc is not _unprepared
    assert collecting == [False, False]
    assert gc.isenabled()
