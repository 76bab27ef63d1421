"""What the application's signal handlers raise within the library reaches the application, and nothing else does.

So do soft time limits of task queues: an exception that a signal handler raises in whatever code runs at that moment.
"""

from __future__ import annotations

import functools
import json
import logging
import signal
import threading
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

import queuewatch
from queuewatch import Watch, watch
from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.aws_lambda.settings import Settings
from queuewatch.aws_lambda.wrapper import Wrapper
from queuewatch.cloudflare import PullConsumer
from queuewatch.instrument import sessions
from queuewatch.log import log_error, log_warning
from queuewatch.sender import BackgroundSender
from tests.client.aws_lambda.test_carrying import event
from tests.client.tracing import before_each_line
from tests.client.transports import Kept

URL = "https://sqs.eu-west-1.amazonaws.com/1/orders"
LIBRARY = str(Path(queuewatch.__file__).parent)


class TimeLimit(Exception):
    """The application's own; RQ's is such an exception too."""


def _over(*_: object, raised: Exception | None = None) -> None:
    raise raised or TimeLimit


class _Limit:
    def over(self, _number: int, _frame: object) -> None:
        _over()

    def __call__(self, _number: int, _frame: object) -> None:
        _over()


@contextmanager
def handled(handler: Callable[..., object], number: int = signal.SIGUSR1) -> Iterator[Callable[[], None]]:
    """Set a signal handler; yields what raises its signal at once."""
    former = signal.signal(number, handler)
    try:
        yield lambda: signal.raise_signal(number)
    finally:
        signal.signal(number, former)


@pytest.fixture
def client() -> Any:
    """A client that gets an answer without a network, with the attributes for which it asks."""
    made: Any = boto3.Session("testing", "testing", region_name="eu-west-1").client("sqs")

    def answer(params: dict[str, Any], model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        asked = json.loads(params["body"])
        parsed: dict[str, Any] = {"MessageId": "m"} if model.name == "SendMessage" else {}
        if model.name == "ReceiveMessage":
            parsed = {"Messages": [{"MessageId": f"m{n}", "ReceiptHandle": f"h{n}", "Body": "b"} for n in range(3)]}
            for message in parsed["Messages"]:
                if asked.get("MessageSystemAttributeNames"):
                    message["Attributes"] = {"SentTimestamp": "1764000000000", "ApproximateReceiveCount": "1"}
                if asked.get("MessageAttributeNames"):
                    message["MessageAttributes"] = {"own": {"StringValue": message["MessageId"], "DataType": "String"}}
        return SimpleNamespace(status_code=200), parsed

    made.meta.events.register("before-call.sqs", answer)
    return made


@pytest.fixture
def watching(client: Any, kept: Kept) -> Iterator[Watch]:
    """The watch of this client."""
    made = watch(client, kept, lineage_attribute="own", max_handles=2)
    client.receive_message(QueueUrl=URL)  # the sender's thread runs from now on
    yield made
    made.unwatch()


CALLS: dict[str, Callable[[Any], Any]] = {
    "send": lambda client: client.send_message(QueueUrl=URL, MessageBody="b"),
    "receive": lambda client: client.receive_message(QueueUrl=URL),
    "delete": lambda client: client.delete_message(QueueUrl=URL, ReceiptHandle="h2"),
}


def at_each_line(act: Callable[[], object], call: Callable[[], object]) -> Iterator[bool]:
    """Make the call again and again, and `act` once at each time: at the first line of the library, the second and so on."""
    number = left = 1

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    while left <= 0 or number == 1:
        left = number
        with before_each_line(count_down, LIBRARY):
            call()
        number += 1
        yield left <= 0


@pytest.mark.parametrize("limit", [TimeLimit, RuntimeError, KeyError], ids=lambda limit: limit.__name__)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("watching")
def test_a_time_limit_reaches_the_application_at_whichever_line_it_ends(client: Any, name: str, limit: type[Exception]) -> None:
    """Also if the limit is a kind of error that the library expects at some place."""
    reached: list[bool] = []
    call = CALLS[name]

    def limited() -> None:
        try:
            call(client)
        except limit:
            reached.append(True)
        else:
            reached.append(False)

    with handled(lambda *_: _over(raised=limit())) as end:
        interrupted = list(at_each_line(end, limited))
    assert len(reached) > 30
    assert interrupted == reached


@pytest.mark.usefixtures("watching")
def test_an_error_at_any_line_leaves_no_attributes_in_a_response(client: Any) -> None:
    """RQ's limit without signals comes from nowhere, and cannot be distinguished from an error of the library."""
    answers: list[Any] = []

    def receive() -> None:
        try:
            answers.append(client.receive_message(QueueUrl=URL))
        except TimeLimit:
            answers.append(None)  # at a line without an exception handler

    interrupted = list(at_each_line(_over, receive))
    assert len(answers) == len(interrupted) > 50
    received = [answer for answer in answers if answer is not None]
    assert len(received) > 40
    for answer in received:
        assert [sorted(message) for message in answer["Messages"]] == [["Body", "MessageId", "ReceiptHandle"]] * 3


def _decorated(function: Callable[..., object]) -> Callable[..., object]:
    def wrapper(*values: object) -> object:
        return function(*values)

    return wrapper


@pytest.mark.parametrize(
    "handler",
    [_over, functools.partial(_over, raised=None), _Limit().over, _Limit(), _decorated(_over)],
    ids=["function", "partial", "method", "object", "decorated"],
)
def test_every_kind_of_handler_is_recognized(client: Any, watching: Watch, handler: Callable[..., object]) -> None:
    """Celery sets a function and RQ a method; the limit ends here by a real timer, while the hook is at work."""
    assert watching._hooks is not None

    def work_for_ever(*_: object) -> None:
        while True:
            pass

    watching._hooks._deliver = work_for_ever
    with handled(handler, signal.SIGALRM), pytest.raises(TimeLimit):  # noqa: PT012 -- the timer belongs into the block
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        client.receive_message(QueueUrl=URL)
    assert watching.stats()["hook_errors"] == 0


def test_the_same_error_of_a_hook_is_no_time_limit(client: Any, watching: Watch) -> None:
    """The function that raises decides, not the kind of exception."""
    assert watching._hooks is not None
    watching._hooks._deliver = lambda _: _over()
    with handled(_Limit().over):
        client.receive_message(QueueUrl=URL)
    assert watching.stats()["hook_errors"] == 1


def test_functions_of_one_decorator_are_distinguished(client: Any, watching: Watch) -> None:
    """They have the same code: only what is called with the frame that it interrupts is a handler."""
    assert watching._hooks is not None
    watching._hooks._deliver = _decorated(_over)  # type: ignore[assignment]
    with handled(_decorated(_over)):
        client.receive_message(QueueUrl=URL)
    assert watching.stats()["hook_errors"] == 1


def test_a_time_limit_that_leads_to_an_error_is_the_one_that_counts(client: Any, watching: Watch) -> None:
    """As in the start of a thread that is interrupted at an awkward moment: undoing it fails."""
    assert watching._hooks is not None

    def interrupted(*_: object) -> None:
        try:
            end()
        except TimeLimit:
            threads: dict[str, None] = {}
            del threads["undoing it fails"]

    watching._hooks._deliver = interrupted
    with handled(_over) as end, pytest.raises(TimeLimit):
        client.receive_message(QueueUrl=URL)
    assert watching.stats()["hook_errors"] == 0


def test_a_time_limit_that_the_application_has_caught_is_over(client: Any, watching: Watch) -> None:
    """It may give its message back then; an error of the hook is one, although it comes while the limit is handled."""
    assert watching._hooks is not None

    def fault(_: object) -> None:
        raise RuntimeError("fault")

    watching._hooks._deliver = fault
    with handled(_over) as end:
        try:
            end()
        except TimeLimit:
            client.receive_message(QueueUrl=URL)
    assert watching.stats()["hook_errors"] == 1


@pytest.mark.parametrize("log", [log_warning, log_error])
def test_a_time_limit_that_ends_while_the_library_logs_reaches_the_application(
    log: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the application's logging does not."""
    with handled(_over) as end:
        monkeypatch.setattr(logging.Logger, "_log", lambda *_, **__: end())
        with pytest.raises(TimeLimit):
            log("x")
    monkeypatch.setattr(logging.Logger, "_log", _over)
    log("x")


class _Slow(Kept):
    """Takes long to import what it needs."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.prepare = act  # type: ignore[method-assign]


def test_a_time_limit_that_ends_while_a_sender_is_made_reaches_the_application() -> None:
    """It imports libraries, which takes up to a second in the first task of a process."""
    with handled(_over) as end, pytest.raises(TimeLimit):
        BackgroundSender(_Slow(end))
    BackgroundSender(_Slow(_over)).close(0)


def test_a_time_limit_that_ends_while_the_senders_thread_starts_reaches_the_application(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another `RuntimeError` means there that the interpreter exits. The event is sent later."""
    sender = BackgroundSender(kept)
    with handled(lambda *_: _over(raised=RuntimeError("30 s are over"))) as end:
        monkeypatch.setattr(threading.Thread, "start", lambda _: end())
        with pytest.raises(RuntimeError, match="30 s are over"):
            sender.offer([{"type": "sent"}])
        monkeypatch.undo()
    assert sender.flush()
    assert len(kept.events()) == 1
    sender.close()


def test_a_time_limit_that_ends_while_a_session_is_made_does_not_end_the_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """`queuewatch-instrument` gives up for good only where the settings are wrong."""
    monkeypatch.setattr(sessions, "_failed", False)
    with handled(_over) as end:
        monkeypatch.setattr(sessions, "watch", lambda *_, **__: end())
        with pytest.raises(TimeLimit):
            sessions._watch(object())
    assert not sessions._failed


@pytest.mark.parametrize("wrapped", [False, True], ids=["as it is", "by urllib"])
def test_a_time_limit_that_ends_during_a_pull_is_no_error_of_the_api(wrapped: bool) -> None:
    """A handler that raises `TimeoutError` is common, and to urllib that is an error of the connection."""
    consumer = PullConsumer("a", "q", queue="orders", token="t")
    limit = TimeoutError("30 s are over")

    def slow(*_: object, **__: object) -> None:
        try:
            end()
        except OSError as error:
            if wrapped:
                raise urllib.error.URLError(error) from error
            raise

    consumer._opener = SimpleNamespace(open=slow)  # type: ignore[assignment]
    with handled(lambda *_: _over(raised=limit)) as end, pytest.raises(TimeoutError) as caught:
        consumer.pull()
    assert caught.value is limit


class _Context:
    """Lambda's context; another wrapper around this one may have set a time limit."""

    aws_request_id = "1"

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def get_remaining_time_in_millis(self) -> int:
        self._act()
        return 3000


def test_a_time_limit_that_ends_before_a_function_begins_ends_the_invocation(kept: Kept) -> None:
    """The function must not run without the limit."""
    calls: list[Any] = []
    function = Wrapper(lambda event, _: calls.append(event), Settings(to="spool:x", consumer="f"), Carrier(kept))
    with handled(_over) as end, pytest.raises(TimeLimit):
        function(event("m0"), _Context(end))
    assert calls == []
    function(event("m0"), _Context(_over))
    assert len(calls) == 1
