"""Telemetry costs an invocation no more than its bound, and what is not sent goes with the next one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.receiver import Receiver, receiver
from tests.client.aws_lambda.runtime_api import Environment, Result
from tests.services.process import free_port

BOUND_S = 0.05
SLACK_S = 0.1  # a machine that is busy with other things


def event(*ids: str, body: str = "returns nothing") -> dict[str, Any]:
    """An SQS event as Lambda hands it over."""
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
    """The first invocation pays for the start of the process."""
    assert function.invoke({}).kind == "returned"


def ended(function: Environment, *ids: str) -> Result:
    """Invoke with some messages, all of which are worked on."""
    result = function.invoke(event(*ids))
    assert (result.kind, result.body) == ("returned", b"null")
    return result


def deleted(ingest: Receiver) -> set[str]:
    """Messages reported as deleted."""
    return {e["message_id"] for e in ingest.events if e["type"] == "deleted"}


def test_everything_has_arrived_when_the_result_is_returned(runtime: Runtime, ingest: Receiver) -> None:
    """The process is frozen then: what is not out by then would wait for the next invocation."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        for i in range(20):
            ended(function, f"m{i}")
            assert f"m{i}" in deleted(ingest)


def test_a_dead_endpoint_changes_no_result_and_costs_at_most_the_bound(runtime: Runtime) -> None:
    """Connections are refused: at once, or the bound later at most."""
    with runtime.start(f"http://127.0.0.1:{free_port()}") as function:
        warm(function)
        for i in range(10):
            assert ended(function, f"m{i}").duration_s < BOUND_S + SLACK_S


def test_a_hanging_endpoint_costs_at_most_the_bound_and_then_nothing(runtime: Runtime, ingest: Receiver) -> None:
    """An endpoint that accepts and never answers is waited for ever more rarely."""
    ingest.hangs = True
    with runtime.start(ingest.url) as function:
        warm(function)
        durations = [ended(function, f"m{i}").duration_s for i in range(20)]
        assert max(durations) < BOUND_S + SLACK_S
        assert sorted(durations)[10] < BOUND_S * 0.7, durations
        ingest.hangs = False


def test_what_a_dead_endpoint_did_not_take_goes_with_a_later_invocation(runtime: Runtime) -> None:
    """Nothing is lost by an outage, and nothing needs a further message to be noticed but an invocation."""
    port = free_port()
    with runtime.start(f"http://127.0.0.1:{port}", QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        for i in range(3):
            ended(function, f"m{i}")
        with receiver(port) as ingest:
            end_s = time.monotonic() + 10
            while not {"m0", "m1", "m2"} <= deleted(ingest):
                assert time.monotonic() < end_s, "what was kept did not come"
                time.sleep(0.2)
                ended(function, "later")


def test_a_slow_endpoint_is_left_behind_and_its_answer_taken_later(runtime: Runtime, ingest: Receiver) -> None:
    """Slower than the bound: the invocation ends, the process is frozen in the middle of a post, and nothing is lost."""
    with runtime.start(ingest.url) as function:
        ended(function, "m0")
        ingest.delay_s = 0.15
        assert ended(function, "m1").duration_s < BOUND_S + SLACK_S
        time.sleep(0.3)  # frozen
        ingest.delay_s = 0.0
        end_s = time.monotonic() + 10
        while not {"m1", "m2"} <= deleted(ingest):
            assert time.monotonic() < end_s
            ended(function, "m2")
            time.sleep(0.1)


def test_a_connection_cut_while_frozen_is_opened_again(runtime: Runtime, ingest: Receiver) -> None:
    """Load balancers close idle connections; the next invocation finds a dead one and uses another."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        ingest.cut()
        time.sleep(0.1)
        ended(function, "m1")
        assert deleted(ingest) == {"m0", "m1"}


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_refusal_that_people_can_put_right_loses_nothing(runtime: Runtime, ingest: Receiver, status: int) -> None:
    """A wrong token or address is an outage until somebody corrects it."""
    ingest.status = status
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        assert not ingest.events
        ingest.status = 202
        ended(function, "m1")
        assert deleted(ingest) == {"m0", "m1"}


def test_a_payload_that_is_refused_for_good_does_not_block_what_follows(runtime: Runtime, ingest: Receiver) -> None:
    """400 means never: it is dropped and counted."""
    ingest.status = 400
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        ended(function, "m0")
        ingest.status = 202
        ended(function, "m1")
        assert deleted(ingest) == {"m1"}


def test_a_batch_of_ten_thousand_is_reported(runtime: Runtime, ingest: Receiver) -> None:
    """The largest batch of a standard queue: more than one payload, and more than one bound."""
    ids = [f"{i:05}" for i in range(10_000)]
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="10000") as function:
        ended(function, *ids)
        assert deleted(ingest) == set(ids)


def test_the_token_is_sent_and_is_in_no_log(runtime: Runtime, ingest: Receiver) -> None:
    """Surrounding white space, as secrets often have it, does no harm."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000", QUEUEWATCH_TOKEN="hush-hush\n") as function:
        ended(function, "m0")
    assert ingest.headers == ["POST /api/v1/events HTTP/1.1 Bearer hush-hush"]
    assert "hush-hush" not in runtime.log.read_text()
