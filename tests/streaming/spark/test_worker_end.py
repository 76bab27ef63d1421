"""A worker that Java left behind ends without a word; every other failure is told."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from sources.wire import decode_records
from streaming.core.track import track
from streaming.spark import decode, stateful_shard
from streaming.spark.state_files import InlineState
from streaming.spark.worker_end import end_quietly
from tests.streaming.spark.packets import T0, event, ndjson
from tests.streaming.spark.test_stateful_shard import State, frame, run


@pytest.mark.parametrize(
    ("error", "told"), [(BrokenPipeError(32, "Broken pipe"), False), (ConnectionResetError(), False), (ValueError("what"), True)]
)
def test_only_a_socket_that_was_closed_is_not_told(
    error: Exception, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As PySpark's daemon prints it."""
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)  # put back after the test
    end_quietly()
    try:
        raise error
    except Exception:
        traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == told


def _as_it_was() -> None:
    """What a worker begins with."""


def test_both_stages_see_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever a worker runs first. And while one works, garbage is not looked for."""
    collecting: list[bool] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            collecting.append(gc.isenabled())
            return work(*arguments)

        return noted

    monkeypatch.setattr(decode, "decode_records", noting(decode_records))
    monkeypatch.setattr(stateful_shard, "track", noting(track))
    monkeypatch.setattr(traceback, "print_exc", _as_it_was)
    packets = frame((ndjson(event("sent", "m", T0)), T0))
    assert traceback.print_exc is not _as_it_was
    monkeypatch.setattr(traceback, "print_exc", _as_it_was)
    run(State(), InlineState(), packets)
    assert traceback.print_exc is not _as_it_was
    assert collecting == [False, False]
    assert gc.isenabled()
