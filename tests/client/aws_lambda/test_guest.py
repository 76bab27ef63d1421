"""The wrapper does not change the function: results and errors are the same with and without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.aws_lambda.conftest import Runtime
from tests.client.aws_lambda.receiver import Receiver
from tests.client.aws_lambda.runtime_api import Result
from tests.client.aws_lambda.test_carrying import deleted, event

SNS = {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "returns an object"}}]}
FOREIGN: list[Any] = [
    {},
    {"key": "value"},
    SNS,
    {"Records": []},
    {"Records": [{"eventSource": "aws:s3", "body": "returns a string"}]},
    {"Records": [{"eventSource": "aws:kinesis", "messageId": "7", "body": "returns nothing"}]},
]
SQS = ["returns nothing", "returns an object", "returns a string", "names all", "raises", "raises without a message"]


def _same(result: Result) -> tuple[str, Any]:
    """Return what the caller sees, without what differs between runs: ids and stack frames."""
    if result.kind == "returned":
        return result.kind, result.payload
    said = json.loads(result.body) if result.body else {}
    return result.kind, (said.get("errorType"), said.get("errorMessage"))


def test_answers_and_errors_are_the_same_with_and_without_the_wrapper(runtime: Runtime, ingest: Receiver) -> None:
    """Results are the same for SQS events and all others."""
    events = [*FOREIGN, *(event("m0", "m1", body=body) for body in SQS)]
    with runtime.start(None, wrapped=False) as bare:
        expected = [_same(bare.invoke(e)) for e in events]
    with runtime.start(ingest.url) as function:
        assert [_same(function.invoke(e)) for e in events] == expected
    assert {kind for kind, _ in expected} == {"returned", "error"}


def test_an_invocation_by_another_source_reports_nothing(runtime: Runtime, ingest: Receiver) -> None:
    """A function may have several event sources."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        for foreign in FOREIGN:
            function.invoke(foreign)
        function.invoke(event("m0"))
    assert {e.get("message_id") for e in ingest.events} == {"m0", None}


def test_the_function_gets_the_original_event_and_context(runtime: Runtime, ingest: Receiver) -> None:
    """Request id, function name and every field of the event are unchanged."""
    given = event("m0")
    with runtime.start(ingest.url, own="context_of") as function:
        result = function.invoke(given)
    assert result.payload["event"] == given
    assert result.payload["name"] == "orders-function"
    (batch,) = [e for e in ingest.events if e["type"] == "batch"] or [{"batch_id": result.payload["id"]}]
    assert result.payload["id"] == batch["batch_id"]


@pytest.mark.parametrize(
    "variables",
    [
        {"QUEUEWATCH_DISABLED": "1"},
        {"QUEUEWATCH_TO": ""},
        {"QUEUEWATCH_TO": "carrier-pigeon:loft"},
        {"QUEUEWATCH_TO": "http://user:secret@127.0.0.1:9400"},
    ],
    ids=["off", "no destination", "no such transport", "a password in the URL"],
)
def test_without_a_destination_the_function_is_unchanged(runtime: Runtime, ingest: Receiver, variables: dict[str, str]) -> None:
    """Telemetry may be switched off, or its destination mistyped in a deployment."""
    with runtime.start(ingest.url, **variables) as function:  # type: ignore[arg-type]
        assert _same(function.invoke(event("m0", body="returns an object"))) == ("returned", {"ok": True})
    assert ingest.events == []
    assert "secret@" not in runtime.log.read_text()


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e12"])
def test_an_invalid_setting_keeps_its_default(runtime: Runtime, ingest: Receiver, value: str) -> None:
    """A typo is only logged."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS=value) as function:
        assert function.invoke({}).kind == "returned"
        assert function.invoke(event("m0")).kind == "returned"
        function.invoke(event("m1"))
    assert "m0" in deleted(ingest)
    assert f"QUEUEWATCH_LAMBDA_SEND_MS={value} is invalid; using 50" in runtime.log.read_text()


@pytest.mark.parametrize("own", ["no_such_handler"])
def test_a_missing_handler_fails_as_it_does_without_the_wrapper(runtime: Runtime, ingest: Receiver, own: str) -> None:
    """The error type is the same, because alarms may match it."""
    with runtime.start(None, own=own, wrapped=False) as bare:
        expected = _same(bare.invoke(event("m0")))
    with runtime.start(ingest.url, own=own) as function:
        assert _same(function.invoke(event("m0"))) == expected
    assert expected[0] == "init error"


def test_an_unset_handler_is_an_error_that_says_so(runtime: Runtime, ingest: Receiver) -> None:
    """QUEUEWATCH_LAMBDA_HANDLER is the one required setting."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_HANDLER="") as function:
        result = function.invoke(event("m0"))
    assert result.kind == "init error"
    assert "QUEUEWATCH_LAMBDA_HANDLER is not set" in result.body.decode()


def test_a_synchronous_function_is_reported_by_its_return_value(runtime: Runtime, ingest: Receiver) -> None:
    """In Node.js, a handler may return no promise; in Python, all handlers are synchronous."""
    own = "plain" if runtime.name == "node" else "handler"
    with runtime.start(ingest.url, own=own, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        result = function.invoke(event("m0", "m1", body="names the first"))
    assert result.payload == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert deleted(ingest) == {"m1"}


def test_without_the_visibility_timeout_no_return_time_is_reported(runtime: Runtime, ingest: Receiver) -> None:
    """The service then ends windows by time; a guess would be worse."""
    with runtime.start(ingest.url, QUEUEWATCH_LAMBDA_SEND_MS="1000") as function:
        function.invoke(event("m0", body="raises"))
    assert [e["type"] for e in ingest.events] == ["received", "batch"]
    assert "invisible_until" not in ingest.events[0]
    assert ingest.events[1]["attributes"] == {"size": 1, "failed": 1, "acked": 0, "retried": 0}
