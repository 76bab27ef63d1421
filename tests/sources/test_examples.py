"""The examples run unchanged."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.services import sqs
from tests.spooled import spooled

_EXAMPLE = Path(__file__).parents[2] / "examples" / "watch_sqs.py"


def test_the_instrumenting_example_runs_and_is_short(moto_sqs: Any, tmp_path: Path) -> None:
    """It has at most ten lines, and its telemetry is written when it exits."""
    client = sqs.client(moto_sqs.endpoint)
    url = client.create_queue(QueueName=f"example-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    message_id = client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    environment = os.environ | {
        "AWS_ENDPOINT_URL_SQS": moto_sqs.endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": sqs.REGION,
        "QUEUE_URL": url,
        "TELEMETRY": f"spool:{tmp_path}",
        "PYTHONPATH": str(_EXAMPLE.parents[1]),
    }
    done = subprocess.run(
        [sys.executable, str(_EXAMPLE)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = spooled(tmp_path)
    assert [(e["type"], e["message_id"]) for e in events] == [("received", message_id), ("deleted", message_id)]
    assert {e["consumer"].rpartition("/")[0] for e in events} == {socket.gethostname()}
    statements = ast.parse(_EXAMPLE.read_text()).body[1:]
    assert sum((node.end_lineno or 0) - node.lineno + 1 for node in statements) <= 10
