"""A destination in trouble causes one warning a minute of ours in the application's log, and none of a library."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from tests.services.process import free_port

_PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.INFO, format="%(name)s %(threadName)s %(message)s")
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
transport = open_transport(sys.argv[1])
if len(sys.argv) > 3:
    transport._timeout_s = float(sys.argv[3])
sender = BackgroundSender(transport, exit_deadline_s=0.5)
for n in range(int(sys.argv[2])):
    sender.offer([{"type": "x"}])
    time.sleep(0.1)
"""


def _logged(to: str, tenths_s: int, environment: dict[str, str] | None = None, *more: str) -> list[str]:
    command = [sys.executable, "-c", _PROGRAM, to, str(tenths_s), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.slow
def test_a_wrong_topic_causes_one_warning(kafka: Any) -> None:
    """It is given up twice and more often. kafka-python alone would log dozens of lines meanwhile."""
    [line] = _logged(f"kafka://{kafka.bootstrap}/no-such-topic", 40, None, "1")
    assert line.startswith("queuewatch.client queuewatch-sender queuewatch: telemetry is not sent")
    assert "no-such-topic" in line


def test_a_healthy_broker_causes_no_log_line(kafka: Any) -> None:
    """The log does not even have the library's message that a task blocked its event loop."""
    assert _logged(f"kafka://{kafka.bootstrap}/{kafka.create_topic()}", 30) == []


@pytest.mark.parametrize("to", ["kafka://127.0.0.1:{port}/t", "http://127.0.0.1:{port}/", "sqs:http://127.0.0.1:{port}/1/q"])
def test_a_dead_destination_causes_one_warning(to: str, sqs_environment: dict[str, str]) -> None:
    """For SQS, botocore's message about where it found credentials is dropped too."""
    [line] = _logged(to.format(port=free_port()), 20, sqs_environment)
    assert line.startswith("queuewatch.client queuewatch-sender queuewatch: telemetry is not sent")


def test_logs_of_the_applications_own_use_of_a_library_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Only log records of our own threads are dropped."""
    from queuewatch.transports import open_transport

    open_transport("kafka://127.0.0.1:1/t").prepare()
    with caplog.at_level(logging.INFO):
        logging.getLogger("kafka.producer.kafka").warning("the application's own")
    assert "the application's own" in caplog.text
