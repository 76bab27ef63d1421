"""Collectors' events are delivered or waited for, and a failed collector is created again."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from queuewatch import SendError
from sources.collect import (
    KINDS,
    CollectorRefused,
    Destination,
    DestinationStopped,
    Kind,
    collector_class,
    config_model,
    destination,
    registry,
    run_collector,
)
from sources.events import Emit
from tests.client.transports import Broken, Kept, later
from tests.waiting import until


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Return numbered events."""
    return [{"n": n, **fields} for n in range(count)]


def test_a_call_returns_when_everything_is_delivered() -> None:
    """The events are packed into few records, whatever their number."""
    kept = Kept(max_bytes=10_000)
    with Destination(kept, threading.Event()) as emit:
        emit(events(3000))
        assert kept.events() == events(3000)
        assert max(map(len, kept.payloads)) <= 10_000
        assert emit.delivered == 3000
    assert kept.closed == 1


@pytest.mark.slow
def test_the_collector_waits_while_the_destination_is_down(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is dropped, and the log says what the collector waits for."""
    broken = Broken(later())
    with Destination(broken, threading.Event()) as emit:
        timer = threading.Timer(0.5, lambda: setattr(broken, "error", None))
        timer.start()
        emit(events(5))
    assert broken.events() == events(5)
    assert "events wait: the other side is down" in caplog.text


def test_a_refused_event_is_retried() -> None:
    """An operator may fix a wrong token while the collector waits."""
    broken = Broken(SendError("401", retry=False))
    with Destination(broken, threading.Event()) as emit:
        threading.Timer(0.3, lambda: setattr(broken, "error", None)).start()
        emit(events(1))
    assert broken.events() == events(1)


def test_events_that_the_service_cannot_read_do_not_block_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """They would be refused for ever; the log names the reason, and their number at the end."""

    class Strict(Kept):
        def send(self, payload: bytes) -> None:
            if b"unreadable" in payload:
                raise SendError("400: none of 2 events can be read", retry=False, unreadable=True)
            super().send(payload)

    strict = Strict()
    with Destination(strict, threading.Event()) as emit:
        for batch in (events(1), [{"unreadable": "x"}] * 2, events(2)):
            emit(batch)
        assert (emit.delivered, emit.unreadable, emit.unsendable) == (3, 2, 0)
    assert strict.events() == [*events(1), *events(2)]
    assert [record.getMessage() for record in caplog.records] == [
        "2 events are not sent again: 400: none of 2 events can be read",
        "0 events could not be sent, 2 could not be read by the service",
    ]


class Clock:
    """Stands in for the module `time`; sleeping moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_stopping_collector_retries_briefly_then_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception keeps the collector from deleting the events at their source."""
    clock, broken, stop = Clock(), Broken(later()), threading.Event()
    monkeypatch.setattr("sources.collect.destination.time", clock)
    with Destination(broken, stop, patience_s=5.0) as emit:
        stop.set()
        with pytest.raises(DestinationStopped, match="down"):
            emit(events(1))
    assert 5.0 <= clock.now_s < 5.3
    assert broken.attempts >= 25


def test_an_unsendable_event_does_not_block_the_others() -> None:
    """It is too large for the destination even alone, or not JSON."""

    class Picky(Kept):
        def send(self, payload: bytes) -> None:
            if b"huge" in payload:
                raise SendError("413", retry=False, too_large=True)
            super().send(payload)

    picky = Picky()
    with Destination(picky, threading.Event()) as emit:
        emit([*events(2), {"n": "huge"}, {"n": object()}, *events(2)])
        assert emit.unsendable == 2
    assert picky.events() == [*events(2), *events(2)]


def test_a_sender_whose_every_event_is_unreadable_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is logged at once, and how many there were some time later."""
    now_s = 1_000.0
    monkeypatch.setattr(destination, "time", SimpleNamespace(monotonic=lambda: now_s))
    emit = Destination(Kept(), threading.Event())
    emit(events(1_000, cost=float("nan"), type="sent"))
    now_s += 60
    emit(events(1, cost=float("nan"), type="sent"))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("an event of type 'sent' is passed on as unreadable: ")
    assert said[1].endswith("(1,000 such events since the last line)")


@pytest.mark.parametrize("value", ["\ud800", float("nan"), float("inf")], ids=["half a surrogate pair", "NaN", "1e999"])
def test_what_only_escaped_json_can_carry_is_passed_on_as_unreadable(value: object) -> None:
    """A drained message may have it; dropped, it would be neither counted as invalid nor in quarantine."""
    kept = Kept()
    with Destination(kept, threading.Event()) as emit:
        emit([{"n": 0}, {"n": value}])
        assert (emit.delivered, emit.unsendable) == (2, 0)
    assert kept.events() == [{"n": 0}, {"unreadable": json.dumps({"n": value})}]


def test_a_single_event_is_refused() -> None:
    """Its keys would be delivered in its place, and counted as invalid where nobody looks."""
    kept = Kept()
    with Destination(kept, threading.Event()) as emit, pytest.raises(TypeError, match="a list of events"):
        emit({"type": "heartbeat"})  # type: ignore[arg-type]
    assert kept.payloads == []


def test_spooled_events_are_on_disk_at_once_and_visible_soon(tmp_path: Path) -> None:
    """They are synced when the call returns, and visible to readers after `max_age_s` without another call."""
    with Destination(f"spool:{tmp_path}?max_age_s=0.3", threading.Event()) as emit:
        emit(events(2))
        [hidden] = tmp_path.glob(".*.open")
        assert [json.loads(line) for line in hidden.read_text().splitlines()] == events(2)
        until(lambda: list(tmp_path.glob("*.ndjson")), "a file is visible to readers")


def test_every_kind_has_a_class_and_a_strict_config_model() -> None:
    """All kinds can be imported, and their models forbid unknown keys."""
    for kind in KINDS:
        assert collector_class(kind).kind == kind
        assert config_model(kind).model_config.get("extra") == "forbid"


def test_an_unknown_kind_is_refused_with_a_suggestion() -> None:
    """A mistyped kind gets the nearest known one suggested."""
    with pytest.raises(ValueError, match="did you mean 'cloudflare'"):
        collector_class("cloudfare")
    with pytest.raises(ValueError, match="known kinds are sqs"):
        config_model("zzz")


class FlakyConfig(BaseModel):
    """How many times to fail, and whether to refuse."""

    model_config = ConfigDict(extra="forbid")
    failures: int = 0
    refuse: bool = False


class Flaky:
    """Fails `failures` times, then emits one event and stops."""

    kind: ClassVar[str] = "flaky"
    made: ClassVar[int] = 0

    def __init__(self, config: FlakyConfig) -> None:
        self._config = config
        type(self).made += 1

    @classmethod
    def from_config(cls, config: FlakyConfig) -> Self:
        """Create the collector from its configuration."""
        return cls(config)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Refuse, fail, or emit and stop."""
        if self._config.refuse:
            raise CollectorRefused("that queue is somebody's")
        if type(self).made <= self._config.failures:
            raise RuntimeError("a fault")
        emit(events(1))
        stop.set()


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the kind `flaky` with a short retry pause."""
    monkeypatch.setitem(registry.KINDS, "flaky", Kind("flaky", lambda: FlakyConfig, lambda: Flaky))
    monkeypatch.setattr("sources.collect.runner._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(Flaky, "made", 0)


@pytest.mark.usefixtures("flaky")
def test_a_failed_collector_is_created_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt starts from the configuration, until one succeeds."""
    kept = Kept()
    assert run_collector("flaky", {"failures": 2}, kept, threading.Event()) == 1
    assert Flaky.made == 3
    assert kept.events() == events(1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


class CountedWaits(threading.Event):
    """A stop whose waits end at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        return self.is_set()


@pytest.mark.usefixtures("flaky")
def test_a_collector_that_returns_early_is_started_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Restarted at once, it would send thousands of events a second."""
    stop = CountedWaits()

    def run(self: Flaky, emit: Emit, stop: threading.Event) -> None:
        emit(events(1))
        if self.made == 3:
            stop.set()

    monkeypatch.setattr(Flaky, "run", run)
    monkeypatch.setattr("sources.collect.runner._FIRST_PAUSE_S", 1.0)
    assert run_collector("flaky", {}, Kept(), stop) == 3
    first_s, second_s = stop.waits_s
    assert first_s == pytest.approx(0.75, abs=0.25)
    assert second_s == pytest.approx(1.5, abs=0.5)
    assert caplog.text.count("RuntimeError: it returned before it was stopped") == 2


@pytest.mark.usefixtures("flaky")
def test_a_refusal_and_a_wrong_configuration_are_not_retried() -> None:
    """Only an operator can fix them."""
    with pytest.raises(CollectorRefused, match="somebody's"):
        run_collector("flaky", FlakyConfig(refuse=True), Kept(), threading.Event())
    with pytest.raises(ValidationError, match="failure_s"):
        run_collector("flaky", {"failure_s": 1}, Kept(), threading.Event())
    with pytest.raises(ValueError, match="not a telemetry transport"):
        run_collector("flaky", {}, "gopher:x", threading.Event())
    assert Flaky.made == 1
