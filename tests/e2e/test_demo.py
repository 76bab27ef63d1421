"""The demo as a newcomer runs it: faults appear on the page within a minute, and Ctrl-C ends it with a summary."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {
    ("PoisonMessage", "orders"),
    ("DeadLetterArrived", "orders-dlq"),
    ("GroupStuck", "payments.fifo"),
    ("SlowConsumer", "invoices"),
}
WITHIN_S = 180
"""For a busy machine; on a quiet one everything appears within a minute."""


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


def firing(url: str) -> set[tuple[str, str]]:
    """Return what fires; empty until the first batch is published."""
    try:
        signals = json.loads(get(f"{url}/api/v1/signals"))["firing"]
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return set()
    return {(s["signal"], s["queue"]) for s in signals}


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_the_demo_shows_every_fault_and_ends_cleanly(tmp_path: Path) -> None:
    """The demo needs no JAVA_HOME and no broker, and page, API and metrics are available."""
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    output = tmp_path / "output.txt"
    command = [sys.executable, "-m", "streaming.cli.main", "demo", "--port", "0"]
    with output.open("w") as out:
        demo = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            seen: set[tuple[str, str]] = set()
            end = time.monotonic() + WITHIN_S
            while not seen >= EXPECTED and time.monotonic() < end:
                time.sleep(1)
                assert demo.poll() is None, output.read_text()
                found = re.search(r"Status page: (http://\S+)/ ", output.read_text())
                if found:
                    url = found[1]
                    seen |= firing(url)
            assert seen >= EXPECTED
            assert b"<html" in get(f"{url}/")
            metrics = get(f"{url}/metrics").decode()
            assert re.search(r'queuewatch_stuck_groups\{[^}]*queue="payments.fifo"[^}]*\} 1', metrics)
            assert re.search(r'queuewatch_messages_dead_lettered_total\{[^}]*queue="orders"[^}]*\} 1', metrics)
            demo.send_signal(signal.SIGINT)
            assert demo.wait(timeout=90) == 0
        finally:
            demo.kill()
            demo.wait()
    said = output.read_text()
    assert "Results:" in said
    assert "Traceback" not in said
    assert "Exception" not in said
    # A newcomer must not see log output of Java and Spark, neither at the start nor after Ctrl-C.
    assert "WARNING" not in said
    assert "ERROR" not in said
