"""For a moment the function has used up all threads that Lambda allows: only the telemetry of that moment may be lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.aws_lambda.settings import Settings
from queuewatch.aws_lambda.wrapper import Wrapper
from tests.client.aws_lambda.test_carrying import event
from tests.client.transports import Kept
from tests.waiting import until


class NoThread(threading.Thread):
    """A thread that cannot be started."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


class Context:
    """The context of an invocation that has no time left."""

    aws_request_id = "r1"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time that the timeout of the function leaves."""
        return 200


def test_telemetry_is_sent_once_a_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed start must not look like an attempt to send that is still running."""
    kept = Kept()
    carrier = Carrier(kept)
    carrier.offer(1, lambda: [{"n": 1}])
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread", NoThread)
        with pytest.raises(RuntimeError, match="can't start"):
            carrier.deliver(10)
    assert carrier.deliver(10)
    assert kept.events() == [{"n": 1}]


def test_an_invocation_without_a_watchdog_is_not_reported_as_timed_out_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in time; the next invocation's watchdog must not find its deadline."""
    kept = Kept()
    settings = Settings(to="x", consumer="c", send_ms=10_000, early_ms=60_000, timeout_margin_ms=100)
    wrapper = Wrapper(lambda _event, _context: None, settings, Carrier(kept))
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread", NoThread)
        wrapper(event("m1"), Context())
    wrapper(event("m2"), Context())
    until(lambda: not wrapper._watchdog._due, "no deadline is left")
    wrapper(event("m3"), Context())
    reported: list[Any] = [(e["type"], e.get("message_id"), e.get("reason")) for e in kept.events()]
    assert ("batch", None, "timed out") not in reported
    assert {message for _, message, _ in reported} == {"m2", "m3", None}
