"""What a watched application pays for a call: the time inside our hooks."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
import numpy as np
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from queuewatch import watch
from queuewatch.hooks import SqsHooks
from tests.benchmarks.figures import Figure, Run
from tests.services.process import free_port

MEDIAN_US: Final = 10.0
P99_US: Final = 50.0
_URL: Final = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
_MD5_OF_X: Final = "9dd4e461268c8034f5c8564e155c67a6"
_WARM_UP_ROUNDS: Final = 300
_ATTRIBUTES: Final = {
    "SenderId": "AIDAEXAMPLE",
    "SentTimestamp": "1760000000000",
    "ApproximateReceiveCount": "1",
    "ApproximateFirstReceiveTimestamp": "1760000000001",
}
_CASES: Final = {"spool": "telemetry into a spool folder", "dead": "nothing listens where telemetry goes, the buffer is full"}


def measure(run: Run, *, quick: bool) -> None:
    """Send, receive and delete one message after another as fast as they go, with a network that takes no time."""
    rounds = 2_000 if quick else 20_000
    for case, words in _CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            spent = _costs(f"spool:{folder}" if case == "spool" else f"http://127.0.0.1:{free_port()}/", rounds)
        detail = {"calls": len(spent), "wall_median_us": _at(spent, 1, 50), "wall_p99_us": _at(spent, 1, 99)}
        what = f"a watched call, {words}: processor time in our hooks"
        run.add(Figure(f"client.{case}.median", f"{what}, median", _at(spent, 0, 50), "µs", at_most=MEDIAN_US, detail=detail))
        run.add(Figure(f"client.{case}.p99", f"{what}, 99 %", _at(spent, 0, 99), "µs", at_most=P99_US, detail=detail))


def _at(spent: list[tuple[int, int]], clock: int, percent: float) -> float:
    """A percentile in microseconds; clock 0 is the processor's, 1 the wall's."""
    return float(np.percentile([times_ns[clock] for times_ns in spent], percent)) / 1000


def _costs(to: str, rounds: int) -> list[tuple[int, int]]:
    """Nanoseconds in the hooks per call."""
    client = _client()
    with _timed_hooks() as spent_ns:
        watching = watch(client, to, consumer="bench", exit_deadline_s=0.0)
        for n in range(_WARM_UP_ROUNDS + rounds):
            if n == _WARM_UP_ROUNDS:
                spent_ns.clear()
            _round(client)
        stats = watching.stats()
        watching.unwatch()
    if stats["hook_errors"] or stats["calls"] != 3 * (rounds + _WARM_UP_ROUNDS):
        raise RuntimeError(f"not every call was seen: {stats}")
    return spent_ns


def _round(client: Any) -> None:
    client.send_message(QueueUrl=_URL, MessageBody="x")
    [message] = client.receive_message(QueueUrl=_URL, MaxNumberOfMessages=1)["Messages"]
    client.delete_message(QueueUrl=_URL, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def _timed_hooks() -> Iterator[list[tuple[int, int]]]:
    """Nanoseconds that each call spends before and after, together, by the processor's clock and by the wall's."""
    spent_ns: list[tuple[int, int]] = []
    before, after = SqsHooks.before, SqsHooks.after
    began: list[tuple[int, int]] = [(0, 0)]

    def timed(hook: Callable[..., None], done: Callable[[int, int], None]) -> Callable[..., None]:
        def call(self: SqsHooks, **given: Any) -> None:
            start_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
            hook(self, **given)
            wall_ns = time.perf_counter_ns() - wall_ns
            done(time.thread_time_ns() - start_ns, wall_ns)

        return call

    def first(cpu_ns: int, wall_ns: int) -> None:
        began[0] = (cpu_ns, wall_ns)

    def second(cpu_ns: int, wall_ns: int) -> None:
        spent_ns.append((began[0][0] + cpu_ns, began[0][1] + wall_ns))

    SqsHooks.before, SqsHooks.after = timed(before, first), timed(after, second)  # type: ignore[method-assign]
    try:
        yield spent_ns
    finally:
        SqsHooks.before, SqsHooks.after = before, after  # type: ignore[method-assign]


def _client() -> Any:
    """A boto3 client that goes through everything but the network."""
    client = boto3.Session("testing", "testing", region_name="eu-west-1").client("sqs")
    numbers = itertools.count()

    def answer(request: Any, **_: Any) -> Any:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        body: dict[str, Any] = {}
        if operation == "SendMessage":
            body = {
                "MessageId": f"00000000-0000-0000-0000-{next(numbers):012d}",
                "MD5OfMessageBody": "9dd4e461268c8034f5c8564e155c67a6",
            }
        elif operation == "ReceiveMessage":
            number = next(numbers)
            wanted = json.loads(request.body).get("MessageSystemAttributeNames")
            message = {"MessageId": f"00000000-0000-0000-0000-{number:012d}", "ReceiptHandle": f"{number:0180d}", "Body": "x"}
            message["MD5OfBody"] = _MD5_OF_X
            body = {"Messages": [message | ({"Attributes": _ATTRIBUTES} if wanted else {})]}
        return AWSResponse(request.url, 200, HTTPHeaders.from_dict({}), _Raw(json.dumps(body).encode()))

    client.meta.events.register("before-send.sqs", answer)
    return client


class _Raw:
    """What botocore reads a body from."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """The whole body at once."""
        yield self._body
