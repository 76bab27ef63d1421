"""A machine with a wrong clock: SQS refuses the proxy's signatures, and the service would not believe its events."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuewatch.proxy import forwarding
from queuewatch.proxy.upstreams import Upstream
from tests.coroutines import finished
from tests.proxy.clients import client
from tests.proxy.fake_sqs import JSON, SENT, Asked, fake_sqs
from tests.services import proxy as proxy_service


class _Keys:
    """Credentials that are always there."""

    access_key, secret_key, token = "key", "secret", None

    async def get(self) -> _Keys:
        return self


def _is_timely(found: Asked, now_s: float) -> bool:
    """Return whether SQS, at this time, accepts when a call was signed."""
    signed = datetime.strptime(found.headers["X-Amz-Date"], "%Y%m%dT%H%M%S%z")
    return abs(signed.timestamp() - now_s) < 300


def test_events_have_the_time_of_sqs_where_the_clock_is_wrong() -> None:
    """The service would take them for late, or for events of the future."""

    def answer(found: Asked) -> tuple[int, str, bytes]:
        return (200 if _is_timely(found, time.time() + 3_600) else 403), JSON, SENT

    with fake_sqs(answer, ahead_s=3_600) as fake, proxy_service.start(fake.endpoint) as proxy:
        made = client(proxy.endpoint)
        for _ in range(2):
            made.send_message(QueueUrl=f"{proxy.endpoint}/123456789012/orders", MessageBody="a")
        ahead_s = [event["at"] / 1000 - time.time() for event in proxy.events()]
        assert [round(ahead / 60) for ahead in ahead_s] == [60, 60]
        assert abs(proxy.stats()["clock_offset_s"] - 3_600) < 5


def test_of_calls_at_once_each_is_repeated_with_the_time_of_sqs() -> None:
    """The first that is refused tells the time; the others, signed before that, seemed to be refused for another reason."""
    together = threading.Barrier(4)

    def answer(found: Asked) -> tuple[int, str, bytes]:
        if _is_timely(found, time.time() + 3_600):
            return 200, JSON, SENT
        together.wait(10)
        return 403, JSON, b"{}"

    with fake_sqs(answer, ahead_s=3_600) as fake, proxy_service.start(fake.endpoint) as proxy, ThreadPoolExecutor(4) as threads:

        def send(_: int) -> int:
            made = client(proxy.endpoint)
            sent = made.send_message(QueueUrl=f"{proxy.endpoint}/123456789012/orders", MessageBody="a")
            return int(sent["ResponseMetadata"]["HTTPStatusCode"])

        assert list(threads.map(send, range(4))) == [200] * 4


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("ahead_s", [-3_600, -200, 0, 200, 3_600])
def test_a_call_that_is_refused_for_its_time_is_signed_with_the_time_of_sqs(
    monkeypatch: pytest.MonkeyPatch, ahead_s: int, protocol: str
) -> None:
    """An SDK corrects its own clock in this way, but the proxy signs anew with that of its machine: each call failed."""
    clock = {"ahead_s": ahead_s}
    monkeypatch.setattr(forwarding, "time", SimpleNamespace(time=lambda: time.time() + clock["ahead_s"]))

    def answer(found: Asked) -> tuple[int, str, bytes]:
        if _is_timely(found, time.time()):
            return 200, JSON, SENT
        if protocol == "query":
            return 403, "text/xml", b"<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>"
        return 400, JSON, b'{"__type":"com.amazon.coral.service#InvalidSignatureException"}'

    async def statuses() -> list[int]:
        forwarder = forwarding.Forwarder(cast(Any, _Keys()))
        try:
            upstream = Upstream("us-east-1", fake.endpoint)
            found = [(await forwarder.forward(upstream, "/", [], b"{}")).status for _ in range(2)]
            clock["ahead_s"] = 0  # it is corrected
            return [*found, (await forwarder.forward(upstream, "/", [], b"{}")).status]
        finally:
            await forwarder.close()

    with fake_sqs(answer) as fake:
        assert finished(statuses()) == [200, 200, 200]
        assert len(fake.asked) == (5 if abs(ahead_s) > 300 else 3), "twice when a clock was found to be wrong"


def test_a_call_that_is_refused_for_another_reason_is_made_once() -> None:
    """A wrong secret, for example; the application gets the answer."""

    async def status() -> int:
        forwarder = forwarding.Forwarder(cast(Any, _Keys()))
        try:
            return (await forwarder.forward(Upstream("us-east-1", fake.endpoint), "/", [], b"{}")).status
        finally:
            await forwarder.close()

    with fake_sqs(lambda _: (403, JSON, b"{}")) as fake:
        assert (finished(status()), len(fake.asked)) == (403, 1)
