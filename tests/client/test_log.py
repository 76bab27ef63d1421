"""An application's logging may raise; that costs the log record and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from queuewatch import watch
from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.aws_lambda.settings import Settings
from queuewatch.aws_lambda.wrapper import Wrapper
from queuewatch.sender import BackgroundSender
from tests.client.hooked import new_queue
from tests.client.transports import Broken, Kept, later
from tests.services import sqs
from tests.waiting import until


class _OnlyInRequests(logging.Filter):
    """Adds the request's id to each record, as many web applications do, and raises where there is no request."""

    def __init__(self) -> None:
        super().__init__()
        self.raised = 0

    def filter(self, _record: logging.LogRecord) -> bool:
        self.raised += 1
        raise RuntimeError("Working outside of request context")


@pytest.fixture
def raising() -> Iterator[_OnlyInRequests]:
    """Let the application's logging raise for each record of the library."""
    log, only_in_requests = logging.getLogger("queuewatch.client"), _OnlyInRequests()
    log.addFilter(only_in_requests)
    yield only_in_requests
    log.removeFilter(only_in_requests)


def test_the_sender_loses_no_event(raising: _OnlyInRequests) -> None:
    """The warning about an outage is written in the sender's thread, which holds the events of the failed attempt."""
    broken = Broken(later())
    sender = BackgroundSender(broken, linger_s=0.01)
    sender.offer([{"n": 1}, {"n": 2}])
    until(lambda: broken.attempts >= 2, "it was tried again")
    broken.error = None
    assert sender.flush()
    assert [event["n"] for event in broken.events()] == [1, 2]
    assert raising.raised == 1
    sender.close()


def test_a_call_of_the_application_succeeds(raising: _OnlyInRequests, moto_sqs: Any, kept: Kept) -> None:
    """The warning about an error in a hook is written within the application's call."""
    client = sqs.client(moto_sqs.endpoint)
    url = new_queue(client)
    watching = watch(client, kept)
    assert watching._hooks is not None

    def fault(*_: object) -> None:
        raise RuntimeError("fault")

    watching._hooks._deliver = fault
    assert client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
    assert (watching.stats()["hook_errors"], raising.raised) == (1, 1)
    watching.unwatch()


def test_an_invocation_returns_its_result(raising: _OnlyInRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same within a Lambda function."""

    def fault(*_: object) -> None:
        raise RuntimeError("fault")

    monkeypatch.setattr("queuewatch.aws_lambda.wrapper.delivery_of", fault)
    wrapper = Wrapper(lambda _event, _context: "result", Settings(to="x", consumer="c"), Carrier(Kept()))
    assert wrapper({}, None) == "result"
    assert raising.raised == 1
