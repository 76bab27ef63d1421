"""A worker that Java left behind ends without a word; every other failure is told."""

from __future__ import annotations

import traceback

import pytest

from streaming.spark.worker_end import end_quietly


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
