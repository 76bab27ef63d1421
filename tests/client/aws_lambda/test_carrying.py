"""Telemetry delays an invocation by no more than its limit, and what is not sent goes with the next one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.receiver import Receiver, receiver
from tests.client.aws_lambda.runtime_api import Environment, Result
from tests.services.process import free_port
from tests.waiting import until

BOUND_S = 0.05
SLACK_S = 0.5  # a promise about the time of real processes: ten times its bound, for other load on the machine


def event(*ids: str, body: str = "returns nothing") -> dict[str, Any]:
    """Build an SQS event as Lambda passes it."""
    now_ms = int(time.time() * 1000)
    said = {"ApproximateReceiveCount": "1", "SentTimestamp": str(now_ms - 100), "ApproximateFirstReceiveTimestamp": str(now_ms)}
    record = {
        "body": body,
        "attributes": said,
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:q",
    }
    return {"Records": [{"messageId": i, **record} for i in ids]}


def warm(function: Environment) -> None:
    """Invoke once, so that later invocations do not include the start of the process."""
    assert function.invoke({}).kind == "returned"


def ended(function: Environment, *ids: str) -> Result:
    """Invoke with these messages, all of which are processed."""
    result = function.invoke(event(*ids))
    assert (result.kind, result.body) == ("returned", b"null")
    return result


def deleted(ingest: Receiver) -> set[str]:
    """Return the ids of the messages reported as deleted."""
    return {e["message_id"] for e in ingest.events if e["type"] == "deleted"}


def test_all_telemetry_has_arrived_when_the_result_is_returned(runtime: Runtime, ingest: Receiver) -> None:
    """The process is then frozen, so telemetry not sent by then would wait for the next invocation."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        for i in range(20):
            ended(function, f"m{i}")
            assert f"m{i}" in deleted(ingest)


def test_a_dead_endpoint_changes_no_result_and_costs_at_most_the_bound(runtime: Runtime) -> None:
    """A refused connection ends at once, or at the limit at the latest."""
    with runtime.start(f"http://127.0.0.1:{free_port()}") as function:
        warm(function)
        for i in range(10):
            assert ended(function, f"m{i}").duration_s < BOUND_S + SLACK_S


def test_a_hanging_endpoint_costs_at_most_the_bound_and_then_nothing(runtime: Runtime, ingest: Receiver) -> None:
    """An endpoint that accepts and never answers is tried less and less often."""
    ingest.hangs = True
    with runtime.start(ingest.url) as function:
        warm(function)
        for i in range(20):
            assert ended(function, f"m{i}").duration_s < BOUND_S + SLACK_S
        assert ingest.posts <= 10
        ingest.hangs = False


def test_events_a_dead_endpoint_missed_are_sent_by_a_later_invocation(runtime: Runtime) -> None:
    """An outage loses nothing; any later invocation sends what was kept."""
    port = free_port()
    with runtime.start(f"http://127.0.0.1:{port}", QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        for i in range(3):
            ended(function, f"m{i}")
        with receiver(port) as ingest:

            def sent() -> bool:
                ended(function, "later")
                return {"m0", "m1", "m2"} <= deleted(ingest)

            until(sent, "what was kept arrived", every_s=0.2)


def test_a_slow_endpoint_does_not_delay_the_result(runtime: Runtime, ingest: Receiver) -> None:
    """When a POST exceeds the limit, the invocation ends, the process is frozen during the POST, and nothing is lost."""
    with runtime.start(ingest.url) as function:
        ended(function, "m0")
        ingest.delay_s = 0.15
        assert ended(function, "m1").duration_s < BOUND_S + SLACK_S
        time.sleep(0.3)  # frozen
        ingest.delay_s = 0.0

        def sent() -> bool:
            ended(function, "m2")
            return {"m1", "m2"} <= deleted(ingest)

        until(sent, "nothing is lost", every_s=0.1)


def test_a_connection_cut_while_frozen_is_opened_again(runtime: Runtime, ingest: Receiver) -> None:
    """Load balancers close idle connections; the next invocation finds a dead one and opens another."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        ingest.cut()
        time.sleep(0.1)
        ended(function, "m1")
        assert deleted(ingest) == {"m0", "m1"}


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_refusal_that_people_can_fix_loses_nothing(runtime: Runtime, ingest: Receiver, status: int) -> None:
    """A wrong token or address is treated as an outage until it is corrected."""
    ingest.status = status
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        assert not ingest.events
        ingest.status = 202
        ended(function, "m1")
        assert deleted(ingest) == {"m0", "m1"}


@pytest.mark.parametrize("status", [400, 415, 422])
def test_a_permanently_refused_payload_does_not_block_later_ones(runtime: Runtime, ingest: Receiver, status: int) -> None:
    """The status is about the payload itself: it is dropped and counted."""
    ingest.status = status
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        ingest.status = 202
        ended(function, "m1")
        assert deleted(ingest) == {"m1"}


def test_a_batch_of_ten_thousand_is_reported(runtime: Runtime, ingest: Receiver) -> None:
    """The largest batch of a standard queue needs more than one payload."""
    ids = [f"{i:05}" for i in range(10_000)]
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="10000") as function:
        ended(function, *ids)
        assert deleted(ingest) == set(ids)


def test_the_token_is_sent_and_is_in_no_log(runtime: Runtime, ingest: Receiver) -> None:
    """White space around the token, as secrets often have it, is removed."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000", QUEUEWATCH_TOKEN="hush-hush\n") as function:
        ended(function, "m0")
    assert ingest.headers == ["POST /api/v1/events HTTP/1.1 Bearer hush-hush"]
    assert "hush-hush" not in runtime.log.read_text()


def test_the_query_of_the_address_is_sent_and_is_in_no_log(runtime: Runtime, ingest: Receiver) -> None:
    """A gateway in front of the service may want a key there."""
    ingest.status = 403
    with runtime.start(f"{ingest.url}?key=hush-hush", QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        ingest.status = 202
        ended(function, "m1")
        assert deleted(ingest) == {"m0", "m1"}
    assert set(ingest.headers) == {"POST /api/v1/events?key=hush-hush HTTP/1.1 "}
    assert f"{ingest.url} answered 403" in runtime.log.read_text()
    assert "hush-hush" not in runtime.log.read_text()


@pytest.mark.parametrize(
    ("explanation", "logged"),
    [
        (b'{"error": {"message": "no\\nsuch name", "fix": "add it to http.allowed_hosts"}}', ": no such name; add it to"),
        (b"<html>", "\n"),
        (b'{"error": {}}', "\n"),
        (b"null", "\n"),
    ],
)
def test_the_log_says_what_the_service_says(runtime: Runtime, ingest: Receiver, explanation: bytes, logged: str) -> None:
    """421 alone says nothing about the setting that is missing. What is no explanation of the service is not shown."""
    ingest.status, ingest.explanation = 421, explanation
    before = len(runtime.log.read_text()) if runtime.log.exists() else 0
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
    assert f"answered 421{logged}" in runtime.log.read_text()[before:]


def test_a_token_that_no_header_can_hold_changes_no_result(runtime: Runtime, ingest: Receiver) -> None:
    """Such as a file with two lines; it is in no log either."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000", QUEUEWATCH_TOKEN="hush\nhush") as function:
        ended(function, "m0")
    assert not ingest.events
    assert "QUEUEWATCH_TOKEN" in runtime.log.read_text()
    assert "hush" not in runtime.log.read_text()
