"""The cost of a watched call for the application: the time inside our hooks."""

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
_CALLS_A_ROUND: Final = 3
_Turn = tuple[bool, Callable[[], int], list[int]]
_CASES: Final = {"spool": "telemetry into a spool folder", "dead": "nothing listens where telemetry goes, the buffer is full"}


def measure(run: Run, *, quick: bool) -> None:
    """Send, receive and delete one message after another at full speed, without a network."""
    rounds = 2_000 if quick else 20_000
    for case, words in _CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            spent = costs(f"spool:{folder}" if case == "spool" else f"http://127.0.0.1:{free_port()}/", rounds)
        detail = {"calls": len(spent.cpu_ns), "wall_median_us": spent.wall_us(50), "wall_p99_us": spent.wall_us(99)}
        detail["clock_us"] = spent.clock_us
        what = f"a watched call, {words}: processor time in our hooks"
        run.add(Figure(f"client.{case}.median", f"{what}, median", spent.cpu_us(50), "µs", at_most=MEDIAN_US, detail=detail))
        run.add(Figure(f"client.{case}.p99", f"{what}, 99%", spent.cpu_us(99), "µs", at_most=P99_US, detail=detail))


class Spent:
    """The nanoseconds that the hooks before and after each call take together.

    Reading the processor's clock is a system call, which costs as much as the hooks. So each call is measured with only one
    clock, and in turn an empty function is measured instead of the hook: its median is the cost of the clock itself.
    """

    def __init__(self) -> None:
        self.cpu_ns: list[int] = []
        self.wall_ns: list[int] = []
        self.empty_cpu_ns: list[int] = []
        self.empty_wall_ns: list[int] = []

    def cpu_us(self, percent: float) -> float:
        """Return a percentile of processor time in microseconds."""
        return (_at(self.cpu_ns, percent) - _at(self.empty_cpu_ns, 50)) / 1000

    def wall_us(self, percent: float) -> float:
        """Return a percentile of wall time, which includes time taken by other threads and processes."""
        return (_at(self.wall_ns, percent) - _at(self.empty_wall_ns, 50)) / 1000

    @property
    def clock_us(self) -> float:
        """The cost of the clock, which is subtracted from the processor time."""
        return _at(self.empty_cpu_ns, 50) / 1000

    def clear(self) -> None:
        """Discard what was measured so far."""
        for found in (self.cpu_ns, self.wall_ns, self.empty_cpu_ns, self.empty_wall_ns):
            found.clear()


def _at(spent_ns: list[int], percent: float) -> float:
    return float(np.percentile(spent_ns, percent))


def costs(to: str, rounds: int) -> Spent:
    """Measure the hooks' cost with telemetry to a destination."""
    client = _client()
    with _timed_hooks() as spent:
        watching = watch(client, to, consumer="bench", exit_deadline_s=0.0)
        for n in range(_WARM_UP_ROUNDS + rounds):
            if n == _WARM_UP_ROUNDS:
                spent.clear()
            _round(client)
        stats = watching.stats()
        watching.unwatch()
    if stats["hook_errors"] or stats["calls"] != 3 * (rounds + _WARM_UP_ROUNDS):
        raise RuntimeError(f"not every call was seen: {stats}")
    return spent


def _round(client: Any) -> None:
    client.send_message(QueueUrl=_URL, MessageBody="x")
    [message] = client.receive_message(QueueUrl=_URL, MaxNumberOfMessages=1)["Messages"]
    client.delete_message(QueueUrl=_URL, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def _timed_hooks() -> Iterator[Spent]:
    """Time the hooks of each call; of four rounds, one uses each clock, and one measures each clock itself."""
    spent = Spent()
    before, after = SqsHooks.before, SqsHooks.after
    turns = itertools.cycle(
        [
            *[(True, time.thread_time_ns, spent.cpu_ns)] * _CALLS_A_ROUND,
            *[(False, time.thread_time_ns, spent.empty_cpu_ns)] * _CALLS_A_ROUND,
            *[(True, time.perf_counter_ns, spent.wall_ns)] * _CALLS_A_ROUND,
            *[(False, time.perf_counter_ns, spent.empty_wall_ns)] * _CALLS_A_ROUND,
        ]
    )
    turn, first_ns = next(turns), 0

    def timed_before(self: SqsHooks, **given: Any) -> None:
        nonlocal turn, first_ns
        turn = next(turns)
        first_ns = _timed(turn, before, self, given)

    def timed_after(self: SqsHooks, **given: Any) -> None:
        turn[2].append(first_ns + _timed(turn, after, self, given))

    SqsHooks.before, SqsHooks.after = timed_before, timed_after  # type: ignore[method-assign,assignment]
    try:
        yield spent
    finally:
        SqsHooks.before, SqsHooks.after = before, after  # type: ignore[method-assign]


def _timed(turn: _Turn, hook: Callable[..., None], hooks: SqsHooks, given: dict[str, Any]) -> int:
    """Call the hook; return the nanoseconds that it took, or that an empty function took."""
    real, clock_ns, _ = turn
    measured = hook if real else _empty
    began_ns = clock_ns()
    measured(hooks, **given)
    took_ns = clock_ns() - began_ns
    if not real:
        hook(hooks, **given)
    return took_ns


def _empty(_hooks: SqsHooks, **_: Any) -> None:
    pass


def _client() -> Any:
    """Build a boto3 client in which everything except the network is real."""
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
    """The raw response from which botocore reads a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield the whole body at once."""
        yield self._body
