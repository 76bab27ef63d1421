"""How often `collect sqs` polls and reports that it is alive, and what it logs, while calls fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

import sources.sqs.collector
from sources.sqs.collector import SqsCollector, _Region
from sources.sqs.config import SqsCollectorConfig
from sources.sqs.problems import LoggedProblems, Problem
from tests.sources.sqs.accounts import PLAIN, Fake, collect


@pytest.mark.slow
def test_throttling_slows_the_polling(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, not at each poll, and no heartbeat is sent."""
    fake: Any = Fake({"orders": PLAIN})
    fake.fail = {"GetQueueAttributes": "RequestThrottled"}
    stop = threading.Event()
    beats: list[Any] = []
    threading.Timer(1.0, stop.set).start()
    config = SqsCollectorConfig(interval_s=0.05)
    with caplog.at_level(logging.WARNING):
        SqsCollector(config, [fake]).run(beats.extend, stop)
    # At intervals of 0.05 s there would be twenty polls; with back-off up to a factor of eight there are few.
    assert 3 <= fake.calls.count("GetQueueAttributes") <= 8
    assert beats == []
    assert caplog.text.count("RequestThrottled") == 2  # the message contains the code twice


def polled(
    config: SqsCollectorConfig, fake: Any, until_s: float, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[float, dict[str, Any]]]:
    """Return what one region reports, and when (seconds), on a clock that moves as soon as anything waits."""
    clock_s = 0.0
    events: list[tuple[float, dict[str, Any]]] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal clock_s
            clock_s += timeout or 0.0
            return self.is_set()

        def is_set(self) -> bool:
            return clock_s >= until_s

    monkeypatch.setattr(sources.sqs.collector, "time", SimpleNamespace(monotonic=lambda: clock_s))
    _Region(config, fake, ()).run(lambda found: events.extend((clock_s, event) for event in found), Stop())
    return events


def longest_pause_s(times_s: Iterable[float]) -> float:
    """Return the longest time between two of them."""
    return max(after - before for before, after in pairwise(times_s))


@pytest.mark.slow
@pytest.mark.parametrize("throttled", [[], ["orders"], ["orders", "payments"]], ids=["none", "a queue", "all"])
@pytest.mark.parametrize("interval_s", [10, 30, 45, 600])
def test_a_collector_that_polls_seldom_does_not_look_silent(
    interval_s: int, throttled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a heartbeat for two minutes it raises TelemetryStale, which would end and begin again at each poll.

    It polls seldom because it is configured to, or because calls are throttled. If it can read nothing, it is silent.
    """
    fake: Any = Fake({"orders": PLAIN, "payments": PLAIN})
    fake.fail = {("GetQueueAttributes", queue): "RequestThrottled" for queue in throttled}
    events = polled(SqsCollectorConfig(interval_s=interval_s), fake, 20_000, monkeypatch)
    heard_s = [at_s for at_s, event in events if event["type"] == "heartbeat"]
    if "payments" in throttled:
        assert heard_s == []
    else:
        assert longest_pause_s(heard_s) == min(interval_s * (8 if throttled else 1), 30)
        polls_s = (at_s for at_s, event in events if event.get("queue") == "payments")
        assert longest_pause_s(polls_s) == interval_s * (8 if throttled else 1)


@pytest.mark.parametrize(
    ("error", "every_s"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "ListQueues"), 30),
        (ClientError({"Error": {"Code": "RequestThrottled"}}, "ListQueues"), 240),
        (EndpointConnectionError(endpoint_url="https://sqs"), 240),
    ],
    ids=["denied", "throttled", "no connection"],
)
def test_queues_named_by_url_are_read_where_queues_cannot_be_listed(
    error: Exception, every_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their dead-letter queues. A missing permission is no reason to call less often: it stays until somebody adds it."""
    policy = '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:orders-dlq","maxReceiveCount":3}'
    fake: Any = Fake({"orders": PLAIN | {"RedrivePolicy": policy}, "orders-dlq": PLAIN, "payments": PLAIN})

    def fail(**_: Any) -> Any:
        raise error

    fake.list_queues = fail
    discovery: Any = {"prefixes": ["payments"], "urls": [fake.url("orders")]}
    events = polled(SqsCollectorConfig(interval_s=30, discovery=discovery), fake, 3_000, monkeypatch)
    assert {event["queue"] for _, event in events if event["type"] == "queue_state"} == {"orders", "orders-dlq"}
    assert longest_pause_s(at_s for at_s, event in events if event.get("queue") == "orders") == every_s


def test_a_lasting_problem_is_logged_every_five_minutes_and_one_of_a_queue_that_is_gone_is_forgotten() -> None:
    """A queue for each job that is soon deleted must not make the collector grow."""
    logged = LoggedProblems()
    lasting = Problem("orders", "GetQueueAttributes", "AccessDenied", "no")
    assert [bool(logged.due([lasting], now_s)) for now_s in (0, 30, 299, 300, 330)] == [True, False, False, True, False]
    for number in range(1_000):
        logged.due([Problem(f"job-{number}", "GetQueueAttributes", "QueueDoesNotExist", "gone")], 330 + number)
    assert len(logged) == 300


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("AccessDenied", "; allow sqs:ListQueueTags on them, see iam-policy.json"),
        ("ExpiredToken", "; renew the collector's credentials, or use a role, whose credentials are renewed by themselves"),
        (
            "InvalidClientTokenId",
            "; if the collector's credentials are valid in other regions, enable this one in the account, or remove it from "
            "collect.sqs.regions; otherwise renew them",
        ),
        (
            "NoCredentialsError",
            "; give the collector a role, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or name a "
            "profile in collect.sqs.profile",
        ),
        ("SSOTokenLoadError", "; run `aws sso login`, or give the collector a role"),
        ("InternalError", ""),
    ],
)
def test_one_cause_is_one_line_of_the_log(code: str, fix: str) -> None:
    """Expired credentials concern every queue: three hundred lines at each poll would hide what else is wrong."""
    logged = LoggedProblems()
    alike = [Problem(f"q{n}", "ListQueueTags", code, "no") for n in range(300)]
    other = Problem("q0", "GetQueueAttributes", "AccessDenied", "no")
    assert logged.due([other, *alike], 0) == [
        "q0: GetQueueAttributes: AccessDenied: no; allow sqs:GetQueueAttributes on it, see iam-policy.json",
        f"ListQueueTags: {code}: 300 queues, for example q0, q1: no{fix}",
    ]
    new = Problem("new", "ListQueueTags", code, "no")
    assert [line.split(":")[0] for line in logged.due([*alike, new], 30)] == ["new"]


@pytest.mark.parametrize("words", ["[SSL: WRONG_VERSION_NUMBER] wrong version number", "[SSL] record layer failure"])
def test_an_https_endpoint_without_tls_is_named_with_the_fix(words: str) -> None:
    """OpenSSL's releases differ in their words, and none of these says what to change."""
    [line] = LoggedProblems().due([Problem("sqs-collector/eu-west-1", "ListQueues", "SSLError", words)], 0)
    assert line.endswith(
        "; this port does not speak TLS: use http:// instead of https://, or correct the port, in collect.sqs.endpoint_url "
        "or AWS_ENDPOINT_URL_SQS"
    )


def test_a_queue_whose_tags_were_throttled_is_looked_at_again_soon() -> None:
    """Without its tags it is not known to be wanted: it would be unwatched until the next search, in five minutes."""

    class Busy(Fake):
        def list_queue_tags(self, **params: Any) -> dict[str, Any]:
            self.fail = {"ListQueueTags": "RequestThrottled"} if self.calls.count("ListQueueTags") == 0 else {}
            return super().list_queue_tags(**params)

    fake: Any = Busy({"orders": PLAIN})
    fake.tags = {"orders": {"env": "prod"}}
    config: Any = {"discovery": {"tags": {"env": "prod"}}, "discovery_interval_s": 300}
    found = collect(fake, lambda events: "queue_state" in [event["type"] for event in events], **config)
    assert fake.calls.count("ListQueueTags") == 2
    assert found


def test_known_queues_are_watched_while_listing_fails() -> None:
    """A failed listing does not count as an empty one."""
    fake: Any = Fake({"orders": PLAIN})

    def until(found: list[dict[str, Any]]) -> bool:
        fake.fail = {"ListQueues": "InternalError"}
        return [event["type"] for event in found].count("queue_state") >= 3

    events = collect(fake, until, discovery_interval_s=0.01)
    assert {event["queue"] for event in events if event["type"] == "queue_state"} == {"orders"}


def test_an_account_without_queues_still_has_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    """Silence would look like a dead collector; the log says once that nothing is watched."""
    fake: Any = Fake({})
    with caplog.at_level(logging.WARNING):
        events = collect(fake, lambda found: len(found) >= 4, discovery_interval_s=0.01)
    assert {event["type"] for event in events} == {"heartbeat"}
    assert caplog.text.count("sqs-collector/eu-west-1: no queue matches collect.sqs.discovery: nothing is watched") == 1


@pytest.mark.parametrize(
    ("failing", "discovery", "says"),
    [
        (
            {"ListQueueTags": "AccessDenied"},
            {"tags": {"env": "prod"}},
            "not watched because their tags (collect.sqs.discovery.tags) could not be read: 2",
        ),
        ({}, {"urls": ["https://sqs.eu-west-1.amazonaws.com/1/gone"]}, "QueueDoesNotExist"),
    ],
    ids=["tags denied", "no such queue"],
)
def test_a_collector_that_watches_nothing_that_it_should_is_silent(
    failing: dict[str, str],
    discovery: dict[str, Any],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Heartbeats would say that all is well. What is wrong is remembered between the searches, and logged first."""
    fake: Any = Fake({"orders": PLAIN, "payments": PLAIN})
    fake.fail = failing
    config: Any = {"interval_s": 30, "discovery": discovery}
    with caplog.at_level(logging.INFO):
        assert polled(SqsCollectorConfig(**config), fake, 1_000, monkeypatch) == []
    first = next(record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert says in first
    assert "no queue matches" not in caplog.text
    if failing:
        fake.fail = {("ListQueueTags", "orders"): "AccessDenied"}
        fake.tags = {"payments": {"env": "prod"}}
        events = polled(SqsCollectorConfig(**config), fake, 1_000, monkeypatch)
        assert {event.get("queue") for _, event in events} == {"payments", None}
