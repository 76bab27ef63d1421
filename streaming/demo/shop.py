"""The demo shop: queues, producers and consumers like those of any application, and a few things that go wrong.

- `orders`: a healthy consumer, and one order that can never be processed. It comes back after every visibility timeout and is
  moved to `orders-dlq`, and a job empties that queue, so its depth never shows a problem.
- `payments.fifo`: a payment of one customer hangs; all later payments of that customer wait behind it, the others flow.
- `invoices`: one of two consumers holds a message and does not finish.
- `emails`: its producer is not instrumented, as in the middle of a rollout; the page says so, and how to fix it.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config as BotoConfig
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

Watch = Callable[[Any, str], None]
"""Instruments a client: `(client, consumer name)`."""

ORDERS, ORDERS_DLQ, INVOICES, EMAILS = "orders", "orders-dlq", "invoices", "emails"
PAYMENTS, PAYMENTS_DLQ = "payments.fifo", "payments-dlq.fifo"
DLQ_RETENTION_S = 14 * 86_400
CUSTOMERS = [f"customer-{n}" for n in range(1, 7)]
STUCK_CUSTOMER = "customer-3"
ORDERS_VISIBILITY_S, PAYMENTS_VISIBILITY_S, INVOICES_VISIBILITY_S = 4, 20, 120
RECEIVES = 4
POISON_AFTER = 5
"""The number of the order that cannot be processed; its payment and its invoice hang."""


class Shop:
    """A shop whose threads run from `start` to `stop`. `endpoint` is the stand-in's URL."""

    def __init__(self, endpoint: str, watch: Watch) -> None:
        self.endpoint, self.watch = endpoint, watch
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []
        self.random = random.Random(7)
        self.urls = self._create_queues()

    def start(self) -> None:
        """Start all producers and consumers."""
        unwatched = threading.Thread(target=self._send_emails, name="demo-newsletter", daemon=True)
        self.threads.append(unwatched)
        unwatched.start()
        roles: list[tuple[str, Callable[[SQSClient], None]]] = [
            ("shop", self._sell),
            ("orders-worker-1", self._work_on_orders),
            ("dlq-drainer", self._drain_dead_letters),
            ("payments-worker-1", self._work_on_payments),
            ("payments-worker-2", self._work_on_payments),
            ("invoices-worker-1", self._work_on_invoices),
            ("invoices-worker-2", self._work_on_invoices),
            ("emails-worker-1", self._work_on_emails),
        ]
        for name, work in roles:
            thread = threading.Thread(target=self._run, args=(name, work), name=f"demo-{name}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for all threads."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout=5)

    def client(self) -> SQSClient:
        """Return a client for the stand-in, with dummy credentials."""
        return boto3.session.Session().client(
            "sqs",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="demo",
            aws_secret_access_key="demo",
            config=BotoConfig(retries={"max_attempts": 2}, connect_timeout=2, read_timeout=30),
        )

    def _run(self, name: str, work: Callable[[SQSClient], None]) -> None:
        client = self.client()
        self.watch(client, name)
        while not self.stopping.is_set():
            try:
                work(client)
            except (ClientError, BotoCoreError):
                # The stand-in stops at the end of the demo, before all clients do.
                self.stopping.wait(1)

    def _create_queues(self) -> dict[str, str]:
        client = self.client()
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        kept = {"MessageRetentionPeriod": str(DLQ_RETENTION_S)}
        urls: dict[str, str] = {}

        def create(name: str, attributes: dict[str, str], dead_letters: str | None = None) -> None:
            if dead_letters is not None:
                answer = client.get_queue_attributes(QueueUrl=urls[dead_letters], AttributeNames=["QueueArn"])
                policy = {"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": RECEIVES}
                attributes = attributes | {"RedrivePolicy": json.dumps(policy)}
            urls[name] = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]

        create(ORDERS_DLQ, kept)
        create(ORDERS, {"VisibilityTimeout": str(ORDERS_VISIBILITY_S)}, ORDERS_DLQ)
        create(PAYMENTS_DLQ, fifo | kept)
        create(PAYMENTS, fifo | {"VisibilityTimeout": str(PAYMENTS_VISIBILITY_S)}, PAYMENTS_DLQ)
        create(INVOICES, {"VisibilityTimeout": str(INVOICES_VISIBILITY_S)})
        create(EMAILS, {})
        return urls

    def _sell(self, client: SQSClient) -> None:
        """Send a few orders per second, each with a payment and sometimes an invoice."""
        number = 0
        while not self.stopping.wait(0.3):
            number += 1
            customer = STUCK_CUSTOMER if number == POISON_AFTER else CUSTOMERS[number % len(CUSTOMERS)]
            amount = "twelve" if number == POISON_AFTER else round(self.random.uniform(5, 200), 2)
            client.send_message(QueueUrl=self.urls[ORDERS], MessageBody=json.dumps({"order": number, "amount": amount}))
            payment = {"order": number, "hangs": number == POISON_AFTER}
            client.send_message(QueueUrl=self.urls[PAYMENTS], MessageBody=json.dumps(payment), MessageGroupId=customer)
            if number % POISON_AFTER == 0:
                invoice = {"order": number, "hangs": number == POISON_AFTER}
                client.send_message(QueueUrl=self.urls[INVOICES], MessageBody=json.dumps(invoice))

    def _work_on_orders(self, client: SQSClient) -> None:
        url = self.urls[ORDERS]
        answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        for message in answer.get("Messages", []):
            order = json.loads(message["Body"])
            if isinstance(order["amount"], float):
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            # Anything else fails, is not deleted, and comes back.
        self.stopping.wait(0.3)

    def _drain_dead_letters(self, client: SQSClient) -> None:
        url = self.urls[ORDERS_DLQ]
        for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.stopping.wait(2)

    def _work_on_payments(self, client: SQSClient) -> None:
        url = self.urls[PAYMENTS]
        for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=1).get("Messages", []):
            if json.loads(message["Body"])["hangs"]:
                self._hang(client, url, message["ReceiptHandle"], PAYMENTS_VISIBILITY_S)
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.stopping.wait(0.05)

    def _work_on_invoices(self, client: SQSClient) -> None:
        url = self.urls[INVOICES]
        for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=1).get("Messages", []):
            if json.loads(message["Body"])["hangs"]:
                # After the wait the message is visible again and the next worker gets it; this one continues.
                self.stopping.wait(INVOICES_VISIBILITY_S)
                continue
            self.stopping.wait(0.2)
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.stopping.wait(0.5)

    def _send_emails(self) -> None:
        """Send emails; this producer is not instrumented."""
        client = self.client()
        while not self.stopping.wait(1):
            try:
                client.send_message(QueueUrl=self.urls[EMAILS], MessageBody="hello")
            except (ClientError, BotoCoreError):
                self.stopping.wait(1)

    def _work_on_emails(self, client: SQSClient) -> None:
        url = self.urls[EMAILS]
        for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.stopping.wait(0.5)

    def _hang(self, client: SQSClient, url: str, handle: str, window_s: int) -> None:
        """Wait forever, keeping the message invisible as a well-behaved worker does."""
        while not self.stopping.wait(window_s / 2):
            client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=window_s)
