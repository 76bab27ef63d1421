"""Requests follow the published schema; a response that does not is an error, never a number."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

import sources.cloudflare.api as api_module
from sources.cloudflare.answers import Backlog, ListedQueue
from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.budget import Budget
from sources.cloudflare.errors import ApiError, BadAnswer, NotFound, RateLimited, Unauthorized, Unavailable
from sources.cloudflare.settings import Consumer, Queue
from tests.sources.cloudflare.api_stub import (
    ACCOUNT,
    TOKEN,
    Fault,
    Stub,
    StubMessage,
    answering,
    failure,
    hanging_up,
    success,
)

SENT_MS = 1_750_000_000_000


@pytest.fixture
def api(stub: Stub) -> Iterator[CloudflareApi]:
    """The client under test."""
    with client(stub) as api:
        yield api


def client(stub: Stub, token: Callable[[], str] = lambda: TOKEN, timeout_s: float = 5.0) -> CloudflareApi:
    """Return a client of the stub."""
    return CloudflareApi(stub.url, ACCOUNT, token, timeout_s=timeout_s)


def test_queues_are_listed_with_settings_and_consumer(stub: Stub, api: CloudflareApi) -> None:
    """The schema's numbers are converted to our units."""
    worker = {
        "type": "worker",
        "script_name": "shop",
        "dead_letter_queue": "orders-dlq",
        "settings": {
            "batch_size": 50,
            "max_retries": 3.0,
            "max_wait_time_ms": 5000,
            "retry_delay": 10,
            "max_concurrency": None,
        },
    }
    stub.add("orders", consumer=worker, settings={"delivery_delay": 5, "message_retention_period": 345600})
    pull = {"type": "http_pull", "dead_letter_queue": "", "settings": {"max_retries": 5, "visibility_timeout_ms": 30000}}
    stub.add("jobs", consumer=pull, settings={"delivery_paused": True})
    stub.add("orders-dlq")
    page = api.page(1)
    assert page.total_pages == 1
    assert page.queues == (
        ListedQueue(
            f"{0:032x}",
            "orders",
            Queue(delivery_delay_s=5, retention_s=345600),
            (
                Consumer(
                    script="shop",
                    max_batch_size=50,
                    max_batch_timeout_s=5,
                    max_retries=3,
                    retry_delay_s=10,
                    dead_letter_queue="orders-dlq",
                ),
            ),
        ),
        ListedQueue(
            f"{1:032x}",
            "jobs",
            Queue(paused=True),
            (Consumer(type="http_pull", max_retries=5, visibility_timeout_s=30, dead_letter_queue=""),),
        ),
        ListedQueue(f"{2:032x}", "orders-dlq", Queue(), ()),
    )
    assert stub.requests[0].query == {"page": ["1"], "per_page": ["100"]}
    assert stub.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_backlog_without_a_known_oldest_message(stub: Stub, api: CloudflareApi) -> None:
    """The API's 0 means "unknown", not 1970."""
    queue = stub.add("orders", backlog=7)
    assert api.backlog(queue.id) == Backlog(7, 700, None)
    queue.messages.append(StubMessage("m", SENT_MS))
    assert api.backlog(queue.id) == Backlog(7, 700, SENT_MS)


@pytest.mark.parametrize("has_peek", [True, False], ids=["peek", "preview"])
def test_a_sample_leaves_messages_where_they_are(stub: Stub, api: CloudflareApi, has_peek: bool) -> None:
    """The endpoint was renamed: both names work, and the client remembers the one that does."""
    stub.has_peek = has_peek
    queue = stub.add("orders", messages=[StubMessage(f"m{i}", SENT_MS + i, attempts=i) for i in range(5)])
    for _ in range(2):
        assert [(m.id, m.attempts, m.sent_at_ms) for m in api.sample(queue.id, 3)] == [
            ("m0", 0, SENT_MS),
            ("m1", 1, SENT_MS + 1),
            ("m2", 2, SENT_MS + 2),
        ]
    assert len(queue.messages) == 5
    assert all(message.lease is None for message in queue.messages)
    assert len(stub.calls("/peek")) == (2 if has_peek else 1)
    assert {tuple(request.body.items()) for request in stub.requests} == {(("batch_size", 3),)}


def test_a_pull_leases_and_an_acknowledgement_settles(stub: Stub, api: CloudflareApi) -> None:
    """One request acknowledges all messages, by lease id."""
    queue = stub.add("telemetry")
    queue.send("[1]", "text")
    queue.send("[2]")
    pulled = api.pull(queue.id, 10, 60)
    assert [(m.body, m.content_type) for m in pulled] == [("[1]", "text"), ("WzJd", "json")]
    assert stub.calls("/pull")[0].body == {"batch_size": 10, "visibility_timeout_ms": 60_000}
    assert api.acknowledge(queue.id, [m.lease_id for m in pulled]) == 2
    assert queue.messages == []


FAULTS: list[tuple[str, Fault, type[ApiError], str]] = [
    ("an HTML page behind a 502", answering(502, "<html>Bad gateway</html>"), Unavailable, "502"),
    (
        "a 500",
        answering(500, '{"success":false,"errors":[{"code":15000,"message":"oops"}]}'),
        Unavailable,
        r"oops \(code 15000\)",
    ),
    ("a connection that is closed", hanging_up, Unavailable, "no answer"),
    ("an HTML page with a 200", answering(200, "<html>Just a moment</html>"), BadAnswer, "begins '<html>"),
    ("an empty body", answering(200, ""), BadAnswer, "not JSON"),
    ("JSON that ends early", answering(200, '{"success":true,"result":{"backlog_cou'), BadAnswer, "not JSON"),
    ("JSON nested without end", answering(200, "[" * 100_000), BadAnswer, "not JSON"),
    ("a list", answering(200, "[]"), BadAnswer, "not an object"),
    (
        "success: false with a 200",
        answering(200, '{"success":false,"errors":[{"code":7,"message":"no"}]}'),
        BadAnswer,
        r"no \(code 7\)",
    ),
    ("errors of another shape", answering(200, '{"success":false,"errors":"no"}'), BadAnswer, "no reason given"),
    ("no success at all", answering(200, '{"result":{"backlog_count":1}}'), BadAnswer, "not successful"),
    ("a 400", answering(400, json.dumps(failure(10207, "schema"))), BadAnswer, "schema"),
    ("a 401", answering(401, "{}"), Unauthorized, "401"),
    ("a 403", answering(403, "<html>"), Unauthorized, "403"),
    ("a 404", answering(404, "{}"), NotFound, "404"),
    ("a 429 that says for how long", answering(429, "{}", retry_after="17"), RateLimited, "wait 17 s"),
    ("a 429 that does not", answering(429, "<html>"), RateLimited, "too many requests$"),
    ("a redirect", answering(302, "", location="http://127.0.0.1:1/"), BadAnswer, "302"),
    ("something that is no gzip", answering(200, "xx", content_encoding="gzip"), Unavailable, "no answer"),
]


@pytest.mark.parametrize(("fault", "expected", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_bad_answer_raises_the_right_error(
    stub: Stub, api: CloudflareApi, fault: Fault, expected: type[ApiError], words: str
) -> None:
    """Every bad response raises the right error without the token, and the next good response is read as usual."""
    queue = stub.add("orders", backlog=3)
    stub.faults["/metrics"].append(fault)
    with pytest.raises(expected, match=words) as caught:
        api.backlog(queue.id)
    assert type(caught.value) is expected
    assert TOKEN not in str(caught.value)
    assert api.backlog(queue.id).count == 3


WRONG: list[tuple[str, Any]] = [
    ("result null", None),
    ("result a list", []),
    ("no count", {"backlog_bytes": 1}),
    ("count as text", {"backlog_count": "7"}),
    ("count true", {"backlog_count": True}),
    ("count negative", {"backlog_count": -1}),
    ("count with a fraction", {"backlog_count": 1.5}),
    ("count null", {"backlog_count": None}),
]


@pytest.mark.parametrize("result", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_backlog_of_the_wrong_type_raises_bad_answer(stub: Stub, api: CloudflareApi, result: Any) -> None:
    """A wrong number on a dashboard is worse than no number."""
    queue = stub.add("orders")
    stub.faults["/metrics"].append(answering(200, json.dumps(success(result))))
    with pytest.raises(BadAnswer):
        api.backlog(queue.id)


def test_details_of_the_wrong_type_are_left_out(stub: Stub, api: CloudflareApi) -> None:
    """The count is valid and kept; invalid values beside it are dropped."""
    queue = stub.add("orders")
    for odd_bytes in ("many", 10**400):
        odd = {"backlog_count": 4.0, "backlog_bytes": odd_bytes, "oldest_message_timestamp_ms": 1_750_000_000}
        stub.faults["/metrics"].append(answering(200, json.dumps(success(odd))))
        assert api.backlog(queue.id) == Backlog(4, None, None)


def test_an_unreadable_queue_hides_no_other(stub: Stub, api: CloudflareApi) -> None:
    """The unreadable entries are listed in `bad`, each with the problem."""
    stub.add("orders")
    half = {"queue_id": "half of a \ud83d pair", "queue_name": "x"}
    entries = [stub.queues[0].as_listed(), {"queue_id": 5, "queue_name": "x"}, "what", {"queue_id": "id"}, half]
    stub.faults["/queues"].append(answering(200, json.dumps(success(entries))))
    page = api.page(1)
    assert [queue.name for queue in page.queues] == ["orders"]
    assert (page.entries, page.total_pages) == (5, None)
    assert page.bad == (
        "result[1]: queue_id is int 5",
        "result[2]: queue is not an object but str what",
        "result[3]: queue_name is missing",
        "result[4]: queue_id is str half of a \ud83d pair",
    )


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"consumers": [], "consumers_total_count": 0}, ()),
        ({"consumers": None, "consumers_total_count": 0}, ()),
        ({"consumers": [], "consumers_total_count": 1}, None),
        ({"consumers": None, "consumers_total_count": None}, None),
        ({"consumers": [{"type": "worker"}], "consumers_total_count": 1}, None),
        ({"consumers": "one", "consumers_total_count": 1}, None),
    ],
)
def test_consumers_missing_from_the_list_are_unknown(
    stub: Stub, api: CloudflareApi, listed: dict[str, Any], expected: tuple[Consumer, ...] | None
) -> None:
    """None means unknown and causes another request; an empty tuple means there are none."""
    stub.add("orders")
    stub.faults["/queues"].append(answering(200, json.dumps(success([stub.queues[0].as_listed() | listed]))))
    assert api.page(1).queues[0].consumers == expected


def test_messages_without_an_id_or_a_date_are_left_out(stub: Stub, api: CloudflareApi) -> None:
    """Only the valid messages of a sample are kept."""
    queue = stub.add("orders")
    messages = [
        {"id": "good", "attempts": 2, "timestamp_ms": SENT_MS},
        {"id": "no attempts", "timestamp_ms": SENT_MS},
        {"attempts": 2, "timestamp_ms": SENT_MS},
        {"id": "x" * 513, "timestamp_ms": SENT_MS},
        {"id": "in seconds", "timestamp_ms": SENT_MS // 1000},
        {"id": 5, "timestamp_ms": SENT_MS},
        None,
    ]
    stub.faults["/peek"].append(answering(200, json.dumps(success({"messages": messages}))))
    assert [(m.id, m.attempts) for m in api.sample(queue.id, 10)] == [("good", 2), ("no attempts", 0)]
    nothing: list[Any] = [{}, {"messages": None}, []]
    for empty in nothing:
        stub.faults["/peek"].append(answering(200, json.dumps(success(empty))))
        assert api.sample(queue.id, 10) == ()
    stub.faults["/peek"].append(answering(200, json.dumps(success({"messages": "none"}))))
    with pytest.raises(BadAnswer, match="messages is no list"):
        api.sample(queue.id, 10)


def test_a_slow_answer_times_out(stub: Stub) -> None:
    """A slow API must not hold up the other queues for long."""
    queue = stub.add("orders")

    def waiting(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(1)  # until the client hangs up

    stub.faults["/metrics"].append(waiting)
    with client(stub, timeout_s=0.2) as api, pytest.raises(Unavailable, match="no answer"):
        api.backlog(queue.id)


def test_an_answer_that_trickles_in_times_out(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its bytes comes within the timeout of a read."""
    monkeypatch.setattr(api_module, "COMPLETE_WITHIN_S", 0.2)
    queue = stub.add("orders")
    hung_up = threading.Event()

    def trickling(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1500")
        handler.end_headers()
        try:
            for _ in range(1500):
                handler.wfile.write(b" ")
                time.sleep(0.02)  # not waited for: this is the API's pace
        except ConnectionError:
            hung_up.set()
            handler.close_connection = True

    stub.faults["/metrics"].append(trickling)
    with client(stub) as api, pytest.raises(Unavailable, match=r"not complete after 0\.2 s"):
        api.backlog(queue.id)
    assert hung_up.wait(30)


@pytest.mark.parametrize("token", ["ab 12", "ab12\n", "“ab12”"])
def test_a_malformed_token_is_not_sent(stub: Stub, token: str) -> None:
    """Nor does the error message contain it."""
    with client(stub, lambda: token) as api, pytest.raises(Unauthorized, match="no token has") as caught:
        api.page(1)
    assert "12" not in str(caught.value)
    assert stub.requests == []


def test_the_token_is_read_for_each_request(stub: Stub) -> None:
    """A rotated token takes effect; a missing one produces an error that says what to set."""
    tokens = iter(["old", TOKEN])
    with client(stub, lambda: next(tokens)) as api:
        with pytest.raises(Unauthorized, match="Authentication error"):
            api.page(1)
        assert api.page(1).queues == ()

    def missing() -> str:
        raise ValueError("CF_TOKEN is not set")

    with client(stub, missing) as api, pytest.raises(Unauthorized, match="CF_TOKEN is not set"):
        api.page(1)


def test_the_client_waits_when_few_requests_are_left(stub: Stub) -> None:
    """The API reports how many requests are left and when its window ends."""
    now = [0.0]
    budget = Budget(1_200, lambda: now[0])
    stub.standing["/queues"] = answering(200, json.dumps(success([])), Ratelimit='"default";r=50;t=30')
    with CloudflareApi(stub.url, ACCOUNT, lambda: TOKEN, timeout_s=5, budget=budget) as api:
        api.page(1)
        assert budget.take()
        stub.standing["/queues"] = answering(200, json.dumps(success([])), Ratelimit='"default";r=2;t=30')
        api.page(1)
    assert not budget.take()
    now[0] = 29.9
    assert budget.wait_s() == pytest.approx(0.1)
    now[0] = 30.0
    assert budget.take()
