"""Telemetry to a separate SQS queue of the service."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from queuewatch.places import region_of_url
from queuewatch.quiet import quiet
from queuewatch.transports.base import SENDER_THREAD, SendError, Transport
from queuewatch.transports.secrets import shown

_GONE = frozenset(("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"))
TOO_LARGE: Final = frozenset(("InvalidParameterValue", "MessageTooLong", "InvalidMessageContents"))
"""Codes of errors about the content of a message, whose size is the only thing that can be wrong with it."""
MAX_BYTES: Final = 250_000
"""The largest payload. A queue's `MaximumMessageSize` may be 256 KiB, or less."""

own_session: Final = threading.local()
"""`in_the_making` is set while this thread creates the telemetry session, which must not be watched."""


class SqsTransport(Transport):
    """Sends one SQS message per payload, through a boto3 client that is not watched itself."""

    def __init__(self, queue: str, *, region: str | None = None, default_region: str | None = None, client: Any = None) -> None:
        """`region` comes before that of the queue's URL and of the environment, `default_region` after them."""
        self.name = shown(f"sqs:{queue}")
        self.max_bytes = MAX_BYTES
        self._queue = queue
        # boto3 calls its own region's endpoint, whatever URL it is given.
        self._region = region or region_of_url(queue)
        self._default_region = default_region
        self._given = client
        self._client: Any = client
        self._url: str | None = None

    def prepare(self) -> None:
        import boto3  # noqa: F401

        for library in ("boto3", "botocore", "urllib3"):
            quiet(library, SENDER_THREAD)

    def send(self, payload: bytes) -> None:
        try:
            self._connect()
            self._client.send_message(QueueUrl=self._url, MessageBody=body_of(payload))
        except SendError:
            raise
        except Exception as error:
            raise self._explain(error) from error

    def close(self) -> None:
        self._client, self._url = self._given, None

    def after_fork(self) -> None:
        self._client, self._url = self._given, None

    def _connect(self) -> None:
        if self._client is None:
            try:
                import boto3
            except ImportError as error:
                raise SendError("boto3 is not installed; pip install boto3", retry=True) from error
            # A separate session, because hooks on the application's session must not see telemetry.
            own_session.in_the_making = True
            try:
                session = boto3.Session()
                # boto3 does not read AWS_REGION, the variable of the other SDKs.
                region = self._region or session.region_name or os.environ.get("AWS_REGION") or self._default_region
                self._client = session.client("sqs", region_name=region)
            finally:
                own_session.in_the_making = False
        if self._url is None:
            if "/" in self._queue:
                self._url = self._queue
            else:
                self._url = self._client.get_queue_url(QueueName=self._queue)["QueueUrl"]

    def _explain(self, error: Exception) -> SendError:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
        if code in _GONE:
            return SendError(f"{self.name}: no such queue; create it or correct the name", retry=True)
        return SendError(
            f"{self.name}: {type(error).__name__}: {error}",
            retry=code not in TOO_LARGE,
            too_large=code in TOO_LARGE,
        )


def body_of(payload: bytes) -> str:
    """Return a payload as a message body: with the two Unicode characters escaped that SQS forbids, as JSON allows."""
    text = payload.decode("utf-8")
    if text.isascii():
        return text
    return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
