"""Faults at real brokers, caused by ordinary clients: a message that always fails, and a consumer that hangs."""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from queuewatch import watch
from streaming.judge.findings.signals import SignalName
from tests.benchmarks.pager_legs import Fault
from tests.services.activemq import ActiveMQ
from tests.services.node import Node
from tests.services.sqs import session
from tests.sources.activemq.lab import Client
from tests.sources.cloudflare.worker_script import SCRIPTS

SUSPECT_AT: Final = 3
"""The receive count at which a message is a suspect, by default."""
HANGS_S: Final = 30.0
"""How long a consumer may hold a message before it counts as slow, by default."""
WITHIN_S: Final = 60.0
_POISON: Final = "PoisonMessage"
_HUNG: Final = "SlowConsumer"

Cause = Callable[[int], Fault]
"""Causes fault number n in a queue of its own, and returns once the fault is observable."""


class SqsApplication:
    """An application with boto3. The library watches its client, which is otherwise ordinary."""

    def __init__(self, endpoint: str, to: str) -> None:
        self._sqs = session().client("sqs", endpoint_url=endpoint)
        self._watch = watch(self._sqs, to=to, consumer="shop-1")
        # Part of its queues' names, because other applications may use the same server.
        self._name = secrets.token_hex(4)

    def prepare(self, numbers: range) -> list[str]:
        """Create the queues of these faults, so that the collector knows them in advance; return their names."""
        names = {self._queue("orders", n): 1 for n in numbers} | {self._queue("invoices", n): 600 for n in numbers}
        for name, visibility_s in names.items():
            self._sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": str(visibility_s)})
        return list(names)

    def poison(self, number: int) -> Fault:
        """Processing of a message fails each time: its window ends, and it is received again."""
        url, message_id = self._send(self._queue("orders", number))
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            count, at_s = self._receive(url)
            if count >= SUSPECT_AT:
                return self._fault("a message that always fails", _POISON, url, message_id, at_s, SUSPECT_AT)
        raise RuntimeError(f"message {message_id} was not received {SUSPECT_AT} times within {WITHIN_S:.0f} s")

    def hang(self, number: int) -> Fault:
        """A consumer receives a message and never finishes it."""
        url, message_id = self._send(self._queue("invoices", number))
        count, at_s = self._receive(url)
        if not count:
            raise RuntimeError(f"message {message_id} was not received")
        return self._fault("a consumer that hangs", _HUNG, url, message_id, at_s, 1, waits_s=HANGS_S)

    @contextmanager
    def business(self) -> Iterator[None]:
        """Run healthy traffic on another queue inside the with block: ten messages a second are sent, received and deleted."""
        over = threading.Event()

        def work() -> None:
            url = self._sqs.create_queue(QueueName=f"healthy-{self._name}")["QueueUrl"]
            while not over.wait(0.1):
                self._sqs.send_message(QueueUrl=url, MessageBody="order")
                for message in self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
                    self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            yield
        finally:
            over.set()
            worker.join(10)

    def close(self) -> None:
        """Send buffered events and stop watching."""
        self._watch.flush()
        self._watch.unwatch()

    def _queue(self, purpose: str, number: int) -> str:
        return f"{purpose}-{self._name}-{number}"

    def _send(self, name: str) -> tuple[str, str]:
        url: str = self._sqs.get_queue_url(QueueName=name)["QueueUrl"]
        message_id: str = self._sqs.send_message(QueueUrl=url, MessageBody="order")["MessageId"]
        return url, message_id

    def _receive(self, url: str) -> tuple[int, float]:
        """Return the receive count of the received message, or 0 if there is none, and the time of the response."""
        got = self._sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, AttributeNames=["ApproximateReceiveCount"])
        messages = got.get("Messages", [])
        return (int(messages[0]["Attributes"]["ApproximateReceiveCount"]) if messages else 0), time.time()

    @staticmethod
    def _fault(what: str, signal: SignalName, url: str, message_id: str, at_s: float, count: int, waits_s: float = 0) -> Fault:
        return Fault(f"SQS (ElasticMQ): {what}", signal, "aws_sqs", url.rpartition("/")[2], message_id, at_s, count, waits_s)


class ActiveMQApplication:
    """STOMP clients without queuewatch: the collector observes them through the broker's advisories."""

    def __init__(self, broker: ActiveMQ) -> None:
        self._broker = broker

    def poison(self, number: int) -> Fault:
        """A message ends every consumer that receives it."""
        queue = f"parcels.{number}"
        sender = Client(self._broker)
        sender.send(queue)
        sender.close()
        for count in range(1, SUSPECT_AT + 1):
            victim = Client(self._broker)
            victim.subscribe(queue, prefetch=1)
            frame, at_s = victim.receive(within_s=WITHIN_S), time.time()
            if count == SUSPECT_AT:
                # The last consumer stays connected, because its end would make no difference.
                what = "ActiveMQ: a message that ends its consumers"
                return Fault(what, _POISON, "activemq", queue, frame.headers["message-id"], at_s, count)
            victim.drop()
        raise AssertionError("unreachable")


class Workers:
    """Wrapped Cloudflare Workers in workerd, with a queue for each fault; their events go to HTTP ingest."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}

    def poison(self, number: int) -> Fault:
        """The Worker retries a message each time."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(f"{number}\n")
            self._process.stdin.flush()
        deadline = time.monotonic() + WITHIN_S
        while number not in self._answers:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"no third delivery in queue mail-{number}")
            time.sleep(0.05)
        answer = self._answers[number]
        what = "Cloudflare (workerd): a message that is always retried"
        return Fault(what, _POISON, "cloudflare_queues", answer["queue"], answer["id"], answer["at"] / 1000, SUSPECT_AT)

    def read(self) -> None:
        """Read the Workers' output until they end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._answers[answer["number"]] = answer


@contextmanager
def workers(node: Node, ingest_url: str, token: str, queues: int) -> Iterator[Workers]:
    """Run the Workers with this many queues inside the with block. Raises `RuntimeError`."""
    command = [node.executable, str(SCRIPTS / "pager_run.mjs"), ingest_url, token, str(queues)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    running = Workers(process)
    reader = threading.Thread(target=running.read, daemon=True)
    reader.start()
    try:
        yield running
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the script ends at the end of its input
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
