"""A wrong argument of `watch` is refused when it is given; a wrong environment stops no application."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from queuewatch import watch
from queuewatch.cloudflare import PullConsumer
from queuewatch.environment import CONSUMER_VARIABLE
from tests.client.hooked import new_queue
from tests.client.transports import Kept
from tests.services import sqs

_WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_batch": 0}, ValueError, "max_batch is 0: give 1"),
    ({"max_batch": 2.5}, TypeError, "max_batch is 2.5: give an integer"),
    ({"max_batch": True}, TypeError, "max_batch is True"),
    ({"max_buffered": -1}, ValueError, "max_buffered is -1"),
    ({"max_buffered": "9"}, TypeError, "max_buffered is '9'"),
    ({"max_handles": 0}, ValueError, "max_handles is 0"),
    ({"linger_s": None}, TypeError, "linger_s is None"),
    ({"linger_s": float("inf")}, ValueError, "linger_s is inf: give a finite number of seconds"),
    ({"linger_s": 1e12}, ValueError, "linger_s is 1000000000000.0: give a finite number of seconds, at most 9223372036"),
    ({"exit_deadline_s": -0.1}, ValueError, "exit_deadline_s is -0.1: give a number of seconds"),
    ({"exit_deadline_s": float("nan")}, ValueError, "exit_deadline_s is nan"),
    ({"exit_deadline_s": "2"}, TypeError, "exit_deadline_s is '2'"),
    ({"consumer": 7}, TypeError, "consumer is 7: give a string"),
    ({"consumer": "x" * 513}, ValueError, "consumer has 513 characters: give at most 512"),
    ({"consumer": "\udc80"}, ValueError, "consumer is .* UTF-8"),
    ({"scope": b"1/eu-west-1"}, TypeError, "scope is b'1/eu-west-1'"),
    ({"lineage_attribute": 7}, TypeError, "lineage_attribute is 7"),
    *(
        ({"lineage_attribute": name}, ValueError, "lineage_attribute is .*: a message attribute of SQS has")
        for name in ("", "order id", "a..b", ".a", "a.", "AWS.id", "amazon.id", "x" * 257)
    ),
]


@pytest.mark.parametrize(("wrong", "error", "says"), _WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_is_refused_with_its_name_and_the_fix(
    kept: Kept, wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Accepted, it would only show as events that never arrive, or not at all."""
    with pytest.raises(error, match=says):
        watch(sqs.session(), kept, **wrong)


@pytest.mark.parametrize("name", ["visibility_timeout_s", "timeout_s"])
@pytest.mark.parametrize("seconds", [math.inf, math.nan, -1, 1e12])
def test_a_pull_consumer_refuses_a_number_of_seconds_that_it_cannot_wait(name: str, seconds: float) -> None:
    """Its calls would raise an `OverflowError`, or fail each time as if the API did not answer."""
    given: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name} is {seconds}: give a .*number of seconds"):
        PullConsumer("a", "0123", queue="orders", **given)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"consumer": "x" * 513}, ValueError, "consumer has 513 characters: give at most 512"),
        ({"consumer": 7}, TypeError, "consumer is 7: give a string"),
        ({"queue": "x" * 513}, ValueError, "queue has 513 characters"),
        ({"account_id": "\udc80"}, ValueError, "account_id is .* UTF-8"),
        ({"dead_letter_queue": b"dead"}, TypeError, "dead_letter_queue is b'dead'"),
    ],
)
def test_a_pull_consumer_refuses_a_name_that_the_service_would_refuse(
    kept: Kept, wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Every event has these names: none would arrive, as with `watch`."""
    given: dict[str, Any] = {"account_id": "a", "queue_id": "0123", "queue": "orders", "to": kept, **wrong}
    with pytest.raises(error, match=says):
        PullConsumer(**given)


def test_the_deadline_at_exit_may_be_infinite(kept: Kept) -> None:
    """The process then waits until everything is sent."""
    watch(sqs.session(), kept, exit_deadline_s=math.inf).unwatch()


@pytest.mark.parametrize("name", ["order-id", "a.b_c", "x" * 256, "awsome"])
def test_every_name_that_sqs_accepts_may_be_the_lineage_attribute(kept: Kept, name: str) -> None:
    """SQS reserves AWS. and Amazon. only."""
    watch(sqs.session(), kept, lineage_attribute=name, exit_deadline_s=0, max_batch=1, consumer="x" * 512).unwatch()


@pytest.mark.parametrize(("given", "name"), [("x" * 600, "x" * 512), ("pod-\udc80", "pod-?")])
def test_an_unusable_consumer_name_of_the_environment_is_cut_and_logged_once(
    moto_sqs: Any, kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: str, name: str
) -> None:
    """The application runs, and its events are accepted."""
    monkeypatch.setenv(CONSUMER_VARIABLE, given)
    client = sqs.client(moto_sqs.endpoint)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            watching = watch(client, kept)
    assert [CONSUMER_VARIABLE in record.getMessage() for record in caplog.records] == [True]
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="x")
    client.receive_message(QueueUrl=url)
    assert watching.flush()
    watching.unwatch()
    assert [event["consumer"] for event in kept.events() if event["type"] == "received"] == [name]
