"""Measure what the wrapper adds to an invocation, with a healthy endpoint on the same machine.

`python -m tests.client.aws_lambda.overhead` prints, for both runtimes, the median, lowest and highest value of five runs. The
handler does nothing, the batch has ten messages, and the time is taken around the wrapped handler in its own process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_NODE = _ROOT / "client/queuewatch/aws_lambda/node/wrapper.mjs"
CALLS = 2_000
_RUNS = 5
_WARM_UP = 100
_PAYLOAD = b'{"v":1,"type":"heartbeat","consumer":"%s"}\n' % (b"x" * 130) * 21
"""As many bytes as the telemetry of a batch of ten: ten receives, ten deletions and one batch event."""


def measure(runtime: str, calls: int = CALLS) -> dict[str, float]:
    """Return the milliseconds added per invocation: `p50`, `p99`, `max`.

    `quiet_p50` and `quiet_p99` are from the quietest tenth of the run; on a busy machine the others also measure its load.
    `post_p50` and `post_p99` are for a bare POST of as many bytes on a kept connection, alternating with the invocations: the
    minimum that sending before the result costs on this machine now. `ratio_p50` and `ratio_p99` are the invocation's time
    divided by that of the POST. `cpu` is the mean processor time, which other load hardly affects; `late` counts invocations
    over the default limit of 50 ms.
    """
    command = {
        "python": [sys.executable, "-m", "tests.client.aws_lambda.overhead", "--function"],
        "node": ["node", str(_HERE / "overhead.mjs"), str(_NODE)],
    }[runtime]
    with _endpoint() as url:
        variables = {**os.environ, "QUEUEWATCH_TO": url, "AWS_LAMBDA_FUNCTION_NAME": "orders", "CALLS": str(calls)}
        variables["QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S"] = "30"
        variables["QUEUEWATCH_LAMBDA_SEND_MS"] = "1000"  # wait for the telemetry, so that no invocation is fast by sending late
        done = subprocess.run(command, cwd=_ROOT, env=variables, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    bare, wrapped, post = (sorted(found[name][_WARM_UP:]) for name in ("bare", "wrapped", "post"))
    return {
        "p50": _at(wrapped, 0.5) - _at(bare, 0.5),
        "p99": _at(wrapped, 0.99) - _at(bare, 0.5),
        "post_p50": _at(post, 0.5),
        "post_p99": _at(post, 0.99),
        "ratio_p50": _at(wrapped, 0.5) / _at(post, 0.5),
        "ratio_p99": _at(wrapped, 0.99) / _at(post, 0.99),
        "quiet_p50": min(_at(sorted(window), 0.5) for window in _windows(found["wrapped"][_WARM_UP:])),
        "quiet_p99": min(_at(sorted(window), 0.99) for window in _windows(found["wrapped"][_WARM_UP:])),
        "cpu": found["cpu"] / len(found["wrapped"]),
        "max": wrapped[-1],
        "late": found["late"],
    }


def event(number: int) -> dict[str, Any]:
    """Build an event with ten messages."""
    now_ms = str(int(time.time() * 1000))
    said = {"ApproximateReceiveCount": "1", "SentTimestamp": now_ms, "ApproximateFirstReceiveTimestamp": now_ms}
    arn = "arn:aws:sqs:eu-west-1:123456789012:orders"
    record = {"body": "x" * 500, "attributes": said, "eventSource": "aws:sqs", "eventSourceARN": arn}
    return {"Records": [{"messageId": f"{number:08}-0ea4-451a-a703-a558b933e27{i}", **record} for i in range(10)]}


class _Context:
    aws_request_id = "5fea7756-0ea4-451a-a703-a558b933e274"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def _nothing(_event: Any, _context: Any) -> None:
    return None


def _function() -> None:
    """Run in a process of its own, as the function does."""
    from queuewatch.aws_lambda.posting import _Connection
    from queuewatch.aws_lambda.settings import settings_from
    from queuewatch.aws_lambda.wrapper import wrap_handler

    wrapped = wrap_handler(_nothing, settings_from())
    found: dict[str, Any] = {"bare": [], "wrapped": [], "post": [], "late": 0, "cpu": 0.0}
    connection = _Connection(os.environ["QUEUEWATCH_TO"])
    for i in range(int(os.environ["CALLS"])):
        given = event(i)
        began_s = time.perf_counter()
        connection.post(_PAYLOAD, {"Content-Type": "application/x-ndjson"})
        found["post"].append((time.perf_counter() - began_s) * 1000)
        for name, handler in (("bare", _nothing), ("wrapped", wrapped)):
            cpu_s, began_s = time.process_time(), time.perf_counter()
            handler(given, _Context())
            found[name].append((time.perf_counter() - began_s) * 1000)
            found["cpu"] += (time.process_time() - cpu_s) * 1000
    found["late"] = sum(ms >= 50 for ms in found["wrapped"])
    print(json.dumps(found))


@contextmanager
def _endpoint() -> Iterator[str]:
    """Run a receiver in a process of its own, so that it does not share the function's interpreter lock."""
    code = "from tests.client.aws_lambda.receiver import Receiver; r = Receiver(); print(r.url, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def _windows(values: list[float]) -> list[list[float]]:
    size = len(values) // 10
    return [values[i * size : (i + 1) * size] for i in range(10)]


def _at(values: list[float], quantile: float) -> float:
    return values[int(quantile * (len(values) - 1))]


if __name__ == "__main__":
    if sys.argv[1:] == ["--function"]:
        _function()
    else:
        for name in ("python", "node"):
            runs = [measure(name) for _ in range(_RUNS)]
            for key in runs[0]:
                found = sorted(run[key] for run in runs)
                print(f"{name:7} {key:10} {found[len(found) // 2]:8.3f}  ({found[0]:.3f} to {found[-1]:.3f})")
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
