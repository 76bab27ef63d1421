"""A signal stops a command whatever it is doing, and a second one interrupts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
import structlog

from streaming.cli import signals
from streaming.cli.signals import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_is_logged(number: signal.Signals) -> None:
    """Outside the block, the signals do what they did before."""
    before = signal.getsignal(number)
    stop = threading.Event()
    with structlog.testing.capture_logs() as logs, stopped_by_signals(stop):
        signal.raise_signal(number)
        assert stop.wait(10)
    assert [(line["event"], line["signal"]) for line in logs] == [("stopping", number.name)]
    assert signal.getsignal(number) is before


def test_a_block_that_ends_by_itself_sets_nothing() -> None:
    """Nor does it wait for a signal."""
    stop = threading.Event()
    with stopped_by_signals(stop):
        pass
    assert not stop.is_set()


def test_a_second_signal_interrupts_at_once() -> None:
    """It need not wait until the first one has set the event."""
    stop = threading.Event()
    with stopped_by_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_during_a_write_to_the_log_stops_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python refuses to write to a stream from a handler that has interrupted a write to it."""
    main = threading.get_ident()

    class Log:
        def info(self, *_: Any, **__: Any) -> None:
            if threading.get_ident() == main:
                raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(signals, "_log", Log())
    stop = threading.Event()
    with stopped_by_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(10)


_WAITS = """
import signal, threading
from streaming.cli.signals import stopped_by_signals

stop = threading.Event()
with stopped_by_signals(stop):
    with stop._cond:
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(10)
"""


def test_a_signal_while_the_command_begins_to_wait_for_the_event_stops_it() -> None:
    """The main thread holds the event's lock then; a handler that wanted it would wait for ever."""
    subprocess.run([sys.executable, "-c", _WAITS], check=True, timeout=30, stdout=subprocess.DEVNULL)
