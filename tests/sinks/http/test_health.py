"""Healthy means the process is alive; ready means that its data is current."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sinks.http import HttpSettings
from sinks.http.health import not_ready
from streaming.judge.snapshot import PipelineView, Snapshot
from tests.sinks.fakes import NOW_MS, shop_snapshot
from tests.sinks.http.conftest import StartService


def snapshot(age_s: float, events: int = 1) -> Snapshot:
    at_ms = NOW_MS - int(age_s * 1000)
    return Snapshot(at_ms, (), (), {"accepted": events}, pipeline=PipelineView(last_batch_at_ms=at_ms))


@pytest.mark.parametrize(
    ("latest", "reasons", "why"),
    [
        (None, ["no batch has been published yet"], "the job has just begun"),
        (snapshot(1, events=0), ["no telemetry event has been read yet"], "batches run, nothing comes"),
        (snapshot(60), [], "at the limit"),
        (snapshot(60.1), ["the last batch was completed 1 min ago (limit: 1 min)"], "just over it"),
        (snapshot(600, events=0), ["no telemetry event", "the last batch was completed 10 min ago"], "both"),
        (snapshot(-5), [], "our clock was set back"),
        (replace(snapshot(600), pipeline=PipelineView(last_batch_at_ms=NOW_MS)), [], "event time lags, batches run"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_ready_means_data_has_flowed_and_the_last_batch_is_recent(latest: Snapshot | None, reasons: list[str], why: str) -> None:
    """The result lists every reason in words."""
    found = not_ready(latest, NOW_MS, 60)
    assert len(found) == len(reasons), why
    assert all(text.startswith(reason[:20]) and reason in text for text, reason in zip(found, reasons, strict=True))


def test_the_endpoints_answer_200_or_503_with_the_reasons(start: StartService) -> None:
    """The status code is for probes, the body for people."""
    starting = start().client
    assert starting.get("/-/healthy").json() == {"healthy": True}
    answer = starting.get("/-/ready")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "no batch" in answer.json()["reasons"][0]
    running = start(shop_snapshot()).client.get("/-/ready")
    assert (running.status_code, running.json()) == (200, {"ready": True, "reasons": []})


def test_probes_are_answered_while_every_thread_is_busy(start: StartService) -> None:
    """A probe that times out restarts the process: slow requests of one client must not lead to that."""
    released = threading.Event()

    def slow_clock() -> int:
        released.wait(30)
        return NOW_MS

    client = start(shop_snapshot(), HttpSettings(clock_ms=slow_clock)).client
    with ThreadPoolExecutor(50) as pool:
        waiting = [pool.submit(client.get, "/api/v1/queues") for _ in range(50)]
        try:
            time.sleep(0.5)  # all of them have arrived
            assert client.get("/-/healthy", timeout=5).status_code == 200
        finally:
            released.set()
        assert {one.result().status_code for one in waiting} == {200}


def test_a_job_that_hangs_is_not_ready_whatever_the_clock_shows(start: StartService) -> None:
    """A clock that was set back shows a time before the last batch; a batch that is never committed is published again."""
    reasons = not_ready(snapshot(-86_400), NOW_MS, 60, silent_s=61)
    assert len(reasons) == 1
    assert "the last batch was completed 1 min 1 s ago (limit: 1 min)" in reasons[0]
    answer = start(shop_snapshot(), HttpSettings(job_silent_s=lambda: 61.0)).client.get("/-/ready")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)


def test_a_dead_job_is_not_healthy(start: StartService) -> None:
    """The job is reported as unhealthy, so that the liveness probe restarts it."""
    settings = HttpSettings(job_fault=lambda: "the streaming query ended: out of memory")
    answer = start(shop_snapshot(), settings).client.get("/-/healthy")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["the streaming query ended: out of memory"]
