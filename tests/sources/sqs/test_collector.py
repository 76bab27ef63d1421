"""`collect sqs`: which queues it finds, what it reports, and what it never does."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import sources.sqs.collector
from sources.collect import CollectorRefused, run_collector
from sources.sqs.account import AccountReader
from sources.sqs.collector import SqsCollector
from sources.sqs.config import DiscoveryConfig, SqsCollectorConfig
from sources.sqs.problems import Problem
from sources.wire import decode_records, encode_ndjson
from tests.client.transports import Kept
from tests.sources.sqs.accounts import PLAIN, READ_ONLY, Account, Fake, Recorded, Regional, collect

TO_DLQ = PLAIN | {"RedrivePolicy": '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:orders-dlq","maxReceiveCount":3}'}

RUNNING = threading.Event()
"""It is never stopped."""


def names(events: list[dict[str, Any]]) -> list[str]:
    """Return the names of the reported queues."""
    return sorted(event["queue"] for event in events)


def read(reader: AccountReader) -> list[dict[str, Any]]:
    """Read the queues that were found."""
    return [event for events in reader.read(RUNNING) for event in events]


def read_account(client: Any, discovery: DiscoveryConfig, problems: list[Problem] | None = None) -> list[dict[str, Any]]:
    """Discover and read an account once."""
    reader = AccountReader(client, discovery)
    reader.discover(RUNNING)
    events = read(reader)
    if problems is not None:
        problems.extend(reader.take_problems())
    return events


@pytest.mark.parametrize("service", ["moto_sqs", "elasticmq"])
def test_a_real_account_is_reported_with_read_only_calls(service: str, request: pytest.FixtureRequest) -> None:
    """It reports states, tags, dead-letter sources and heartbeats with five read-only calls and never receives."""
    account = Account(request.getfixturevalue(service).endpoint)
    dlq = account.queue("orders-dlq")
    url = account.queue("orders", tags={"team": "shop"}, RedrivePolicy=account.redrive_to(dlq), VisibilityTimeout="45")
    account.client.send_message(QueueUrl=url, MessageBody="x")
    recorded = Recorded(account.endpoint)
    events = collect(
        recorded.client,
        lambda found: sum(event["type"] == "heartbeat" for event in found) >= 2,
        discovery={"prefixes": [account.prefix]},
        move_task_interval_s=0.01,
    )
    assert set(recorded.operations) <= READ_ONLY
    assert "GetQueueAttributes" in recorded.operations
    states = {event["queue"]: event for event in events if event["type"] == "queue_state"}
    orders, dead = states[account.prefix + "orders"], states[account.prefix + "orders-dlq"]
    found = orders["attributes"]
    assert (found["visible"], found["in_flight"], found["visibility_timeout_s"], found["max_receive_count"]) == (
        1,
        0,
        45,
        3,
    )
    assert (found["dead_letter_queue"], found["tags"]) == (account.prefix + "orders-dlq", {"team": "shop"})
    assert dead["attributes"]["dead_letter_sources"] == [account.prefix + "orders"]
    assert orders["scope"].endswith("/us-east-1")
    [heartbeat] = {event["consumer"] for event in events if event["type"] == "heartbeat"}
    assert heartbeat == "sqs-collector/us-east-1"
    assert decode_records([encode_ndjson(events)]).invalid == []


def test_the_shipped_policy_allows_the_five_calls_and_nothing_else() -> None:
    """The policy rules out anything the collector must not do, even by mistake."""
    folder = Path(sources.sqs.__file__).parent
    policy = json.loads((folder / "iam-policy.json").read_text())
    allowed: set[str] = set()
    for statement in policy["Statement"]:
        action = statement["Action"]
        allowed.update([action] if isinstance(action, str) else action)
        assert statement["Effect"] == "Allow"
    assert allowed == {f"sqs:{name}" for name in READ_ONLY}
    own = json.loads((folder / "iam-policy-telemetry-queue.json").read_text())
    assert all(":queuewatch-telemetry" in statement["Resource"] for statement in own["Statement"])


QUEUES: dict[str, dict[str, str]] = {
    "orders": TO_DLQ,
    "orders-dlq": PLAIN,
    "orders-test": PLAIN,
    "mail.fifo": PLAIN | {"FifoQueue": "true"},
    "telemetry": PLAIN,
}
TAGS = {"orders": {"env": "prod", "team": "shop"}, "mail.fifo": {"env": "prod-eu"}, "orders-test": {"env": "dev"}}

FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["mail.fifo", "orders", "orders-dlq", "orders-test", "telemetry"]),
    ({"prefixes": ["orders"]}, ["orders", "orders-dlq", "orders-test"]),
    ({"prefixes": ["orders", "orders-"], "exclude": ["*-test"]}, ["orders", "orders-dlq"]),
    ({"include": ["*.fifo"]}, ["mail.fifo"]),
    ({"tags": {"env": "prod*"}}, ["mail.fifo", "orders", "orders-dlq"]),
    ({"tags": {"env": "prod*", "team": "*"}}, ["orders", "orders-dlq"]),
    ({"tags": {"team": "shop"}, "with_dead_letter_queues": False}, ["orders"]),
    ({"urls": ["https://sqs.eu-west-1.amazonaws.com/1/telemetry"]}, ["telemetry"]),
    (
        {"urls": ["https://sqs.eu-west-1.amazonaws.com/1/telemetry"], "prefixes": ["mail"], "tags": {"env": "*"}},
        ["mail.fifo", "telemetry"],
    ),
]


@pytest.mark.parametrize(("discovery", "expected"), FOUND, ids=str)
@pytest.mark.parametrize("page", [1000, 2])
def test_queues_are_found_by_prefix_pattern_tag_and_url(discovery: dict[str, Any], expected: list[str], page: int) -> None:
    """Each queue is found once over any number of pages, together with its dead-letter queue."""
    fake = Fake(QUEUES, page)
    fake.tags = TAGS
    found: Any = read_account(fake, DiscoveryConfig(**discovery))
    assert names(found) == expected
    assert set(fake.calls) <= READ_ONLY
    if not DiscoveryConfig(**discovery).lists:
        assert "ListQueues" not in fake.calls


def test_an_error_concerns_only_its_queue() -> None:
    """The other queues are read, the problem is reported with its fix, and a deleted queue is no longer watched."""
    fake: Any = Fake(QUEUES)
    fake.fail = {
        ("GetQueueAttributes", "orders-test"): "AccessDenied",
        ("ListQueueTags", "orders"): "AccessDenied",
    }
    problems: list[Problem] = []
    events = read_account(fake, DiscoveryConfig(), problems=problems)
    assert names(events) == ["mail.fifo", "orders", "orders-dlq", "telemetry"]
    assert "orders-test: GetQueueAttributes: AccessDenied" in "".join(map(str, problems))
    assert all("allow sqs:" in str(problem) for problem in problems)
    reader = AccountReader(fake, DiscoveryConfig())
    reader.discover(RUNNING)
    del fake.queues["telemetry"]
    read(reader)
    assert "telemetry" not in [place.queue for place in reader.places]


def test_a_dead_letter_queue_stays_watched_when_its_source_cannot_be_read() -> None:
    """A single failed call would otherwise leave it unwatched until the next search."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})
    reader = AccountReader(fake, DiscoveryConfig(include=("orders",)))
    reader.discover(RUNNING)
    assert names(read(reader)) == ["orders", "orders-dlq"]
    fake.fail = {("GetQueueAttributes", "orders"): "RequestThrottled"}
    reader.discover(RUNNING)
    fake.fail = {}
    assert names(read(reader)) == ["orders", "orders-dlq"]
    fake.queues["orders"] = PLAIN
    reader.discover(RUNNING)
    assert names(read(reader)) == ["orders"]


def test_a_dead_letter_queue_of_very_many_sources_is_reported() -> None:
    """An event of all their names would be larger than 64 KiB, and be refused with the counts of the queue."""
    policy = {"RedrivePolicy": '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:dead","maxReceiveCount":3}'}
    sources = [f"{'service-' * 9}{n:06d}" for n in range(900)]
    fake = Fake({"dead": {**PLAIN, "ApproximateNumberOfMessages": "7"}} | dict.fromkeys(sources, PLAIN | policy))
    events = collect(fake, lambda found: any(e["type"] == "queue_state" for e in found), discovery={"prefixes": ["dead"]})
    assert decode_records([encode_ndjson(events)]).invalid == []
    reported = next(e["attributes"] for e in events if e["type"] == "queue_state")
    assert (reported["visible"], reported["dead_letter_sources"]) == (7, sources[:100])


def test_a_list_that_gives_the_same_token_again_comes_to_an_end() -> None:
    """Some proxies and stand-ins for SQS ignore the token, and answer with the first page each time."""
    fake = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})

    def without_end(answer: dict[str, Any]) -> dict[str, Any]:
        assert len(fake.calls) < 50, "it asks for ever"
        return answer | {"NextToken": "again"}

    lists, sources = fake.list_queues, fake.list_dead_letter_source_queues
    # The stand-in reads no position from this token.
    fake.list_queues = lambda **params: without_end(lists(**params | {"NextToken": "0"}))  # type: ignore[method-assign]
    fake.list_dead_letter_source_queues = lambda **params: without_end(sources(**params))  # type: ignore[method-assign]
    events = read_account(fake, DiscoveryConfig())
    assert names(events) == ["orders", "orders-dlq"]
    assert [e["attributes"]["dead_letter_sources"] for e in events if e["queue"] == "orders-dlq"] == [["orders"]]


def test_an_answer_without_attributes_is_a_problem_and_no_queue_without_a_dead_letter_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """botocore turns a proxy's page of HTML, or half of an answer, into an answer without attributes."""
    fake: Any = Fake({"orders": PLAIN, "mail": PLAIN})
    whole = fake.get_queue_attributes
    monkeypatch.setattr(fake, "get_queue_attributes", lambda **p: {} if p["QueueUrl"].endswith("orders") else whole(**p))
    problems: list[Problem] = []
    assert names(read_account(fake, DiscoveryConfig(), problems)) == ["mail"]
    assert "orders: GetQueueAttributes: BadAnswer: it has no attributes" in "".join(map(str, problems))


def test_a_queue_that_is_gone_leaves_its_namesake_of_another_account() -> None:
    """Queues named by URL may belong to several accounts."""

    class TwoAccounts(Fake):
        def get_queue_attributes(self, **params: Any) -> dict[str, Any]:
            if params["QueueUrl"].startswith("https://sqs.eu-west-1.amazonaws.com/2/"):
                self._called("GetQueueAttributes", "gone")
            return super().get_queue_attributes(**params)

    fake: Any = TwoAccounts({"orders": PLAIN})
    urls = ("https://sqs.eu-west-1.amazonaws.com/1/orders", "https://sqs.eu-west-1.amazonaws.com/2/orders")
    reader = AccountReader(fake, DiscoveryConfig(urls=urls))
    reader.discover(RUNNING)
    assert names(read(reader)) == ["orders"]
    assert names(read(reader)) == ["orders"]
    assert [place.scope for place in reader.places] == ["1/eu-west-1"]


def test_a_queue_named_by_url_is_read_in_its_own_region_only() -> None:
    """In another region SQS answers that it does not exist, and the namesake there would be given up."""
    clients: list[Any] = [Regional("eu-west-1", "orders"), Regional("us-east-1", "orders")]
    config = SqsCollectorConfig(
        interval_s=0.05,
        discovery=DiscoveryConfig(urls=tuple(client.url("orders") for client in clients)),
    )
    stop = threading.Event()
    found: list[Any] = []

    def emit(events: Any) -> None:
        found.extend(event["scope"] for event in events if event["type"] == "queue_state")
        if min(found.count("1/eu-west-1"), found.count("1/us-east-1")) >= 3:
            stop.set()

    timer = threading.Timer(20, stop.set)
    timer.start()
    SqsCollector(config, clients).run(emit, stop)
    timer.cancel()
    assert found.count("1/eu-west-1") >= 3
    assert [client.foreign for client in clients] == [0, 0]


@pytest.mark.parametrize(
    ("queue", "region"),
    [("telemetry", "eu-west-1"), ("https://sqs.us-east-1.amazonaws.com/1/telemetry", "us-east-1")],
)
def test_the_telemetry_queue_is_drained_while_another_region_cannot_be_listed(queue: str, region: str) -> None:
    """The drain waits only until the queues of its own region are known: that of its URL, or else the first."""
    clients: list[Any] = [Regional("eu-west-1", "orders"), Regional("us-east-1", "orders")]
    own, other = sorted(clients, key=lambda client: client.meta.region_name != region)
    other.fail = {"ListQueues": "AccessDenied"}
    stop = threading.Event()

    def receive(**_: Any) -> dict[str, Any]:
        drained.set()
        stop.set()
        return {}

    drained = threading.Event()
    own.receive_message = receive
    own.get_queue_url = lambda **_: {"QueueUrl": own.url("telemetry")}
    config = SqsCollectorConfig(interval_s=0.05, telemetry={"queue": queue})  # type: ignore[arg-type]
    timer = threading.Timer(5, stop.set)
    timer.start()
    SqsCollector(config, clients).run(lambda _: None, stop)
    timer.cancel()
    assert drained.is_set()


def test_the_telemetry_queue_is_drained_where_queues_cannot_be_listed() -> None:
    """Those named by URL are all that are watched then."""
    client: Any = Regional("eu-west-1", "orders")
    client.fail = {"ListQueues": "AccessDenied"}
    stop, drained = threading.Event(), threading.Event()

    def receive(**_: Any) -> dict[str, Any]:
        drained.set()
        stop.set()
        return {}

    client.receive_message = receive
    client.get_queue_url = lambda **_: {"QueueUrl": client.url("telemetry")}
    discovery = {"prefixes": ["orders"], "urls": [client.url("orders")]}
    config = SqsCollectorConfig(interval_s=0.05, discovery=discovery, telemetry={"queue": "telemetry"})  # type: ignore[arg-type]
    timer = threading.Timer(5, stop.set)
    timer.start()
    SqsCollector(config, [client]).run(lambda _: None, stop)
    timer.cancel()
    assert drained.is_set()


def test_a_redrive_task_is_followed_to_its_end() -> None:
    """Tasks are requested for dead-letter queues only: at every poll while one runs, rarely otherwise."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})
    now = [1_760_000_000_000]
    reader = AccountReader(fake, DiscoveryConfig(), move_task_interval_s=60, clock_ms=lambda: now[0])
    reader.discover(RUNNING)

    def look(after_s: int, moved: int | None, status: str = "RUNNING") -> Any:
        now[0] += after_s * 1000
        if moved is not None:
            fake.tasks["orders-dlq"] = [
                {
                    "Status": status,
                    "StartedTimestamp": 1_760_000_000_000,
                    "ApproximateNumberOfMessagesMoved": moved,
                    "ApproximateNumberOfMessagesToMove": 100,
                }
            ]
        states = {event["queue"]: event["attributes"] for event in read(reader)}
        assert "redrive_task" not in states["orders"]
        return states["orders-dlq"].get("redrive_task")

    assert look(0, None) is None
    assert look(10, 20) is None  # not due yet
    assert look(60, 40)["status"] == "RUNNING"
    assert look(10, 60)["time_left_s"] == 20  # 20 in 10 s, 40 left
    done = look(10, 100, "COMPLETED")
    assert (done["status"], done["moved"]) == ("COMPLETED", 100)
    assert fake.calls.count("ListMessageMoveTasks") == 4
    assert look(10, None) == done
    assert fake.calls.count("ListMessageMoveTasks") == 4


def test_a_redrive_task_is_found_after_the_clock_was_set_back() -> None:
    """The machine's clock was a day ahead and is corrected: tasks are not requested a day later."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})
    now = [1_760_000_000_000]
    reader = AccountReader(fake, DiscoveryConfig(), move_task_interval_s=60, clock_ms=lambda: now[0])
    reader.discover(RUNNING)
    read(reader)
    now[0] -= 86_400_000
    fake.tasks["orders-dlq"] = [{"Status": "RUNNING", "StartedTimestamp": now[0], "ApproximateNumberOfMessagesMoved": 20}]
    [attributes] = [event["attributes"] for event in read(reader) if event["queue"] == "orders-dlq"]
    assert attributes["redrive_task"]["moved"] == 20


def test_a_running_redrive_task_that_cannot_be_read_is_withdrawn() -> None:
    """Its last known progress would look like a task that has stopped moving messages (`RedriveStalled`)."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})
    now = [1_760_000_000_000]
    task = {"Status": "RUNNING", "StartedTimestamp": now[0], "ApproximateNumberOfMessagesMoved": 20}
    fake.tasks["orders-dlq"] = [task]
    reader = AccountReader(fake, DiscoveryConfig(), move_task_interval_s=60, clock_ms=lambda: now[0])
    reader.discover(RUNNING)

    def look(after_s: int) -> Any:
        now[0] += after_s * 1000
        return {event["queue"]: event["attributes"] for event in read(reader)}["orders-dlq"]["redrive_task"]

    first = look(60)
    fake.fail = {"ListMessageMoveTasks": "RequestThrottled"}
    assert look(200) == first  # a few failed calls change nothing
    assert look(200) is None
    fake.fail = {}
    assert look(10)["progressed_at"] == first["progressed_at"]
    fake.tasks.clear()
    assert look(10) is None


@pytest.mark.parametrize("answer", ["refused", "empty", "completed"])
def test_a_running_redrive_task_of_a_queue_without_sources_is_not_reported_for_ever(answer: str) -> None:
    """Once its last source queue is gone, its old progress would look like a task that has stopped (`RedriveStalled`)."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN})
    now = [1_760_000_000_000]
    task = {"Status": "RUNNING", "StartedTimestamp": now[0], "ApproximateNumberOfMessagesMoved": 20}
    fake.tasks["orders-dlq"] = [task]
    reader = AccountReader(fake, DiscoveryConfig(), move_task_interval_s=60, clock_ms=lambda: now[0])

    def look() -> Any:
        now[0] += 60_000
        reader.discover(RUNNING)
        return {event["queue"]: event["attributes"] for event in read(reader)}["orders-dlq"]["redrive_task"]

    assert look()["status"] == "RUNNING"
    fake.queues["orders"] = PLAIN
    if answer == "refused":
        fake.fail = {"ListMessageMoveTasks": "ResourceNotFoundException"}
    fake.tasks["orders-dlq"] = [{**task, "Status": "COMPLETED"}] if answer == "completed" else []
    found = [look(), look()]
    assert [task and task["status"] for task in found] == (["COMPLETED"] * 2 if answer == "completed" else [None] * 2)
    assert fake.calls.count("ListMessageMoveTasks") == 2


def test_what_was_removed_from_a_queue_is_withdrawn() -> None:
    """The service keeps the value reported last: a removed policy would be reported as wrong for ever."""
    fake: Any = Fake({"orders": TO_DLQ, "orders-dlq": PLAIN | {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}})
    fake.tags = {"orders-dlq": {"team": "shop"}}
    reader = AccountReader(fake, DiscoveryConfig())

    def look() -> tuple[Any, Any, Any]:
        reader.discover(RUNNING)
        found = {event["queue"]: event["attributes"] for event in read(reader)}["orders-dlq"]
        return tuple(found[name] for name in ("redrive_allow_policy", "tags", "dead_letter_sources"))

    assert look() == ({"permission": "denyAll", "sources": []}, {"team": "shop"}, ["orders"])
    fake.queues = {"orders": PLAIN, "orders-dlq": PLAIN}
    fake.tags = {}
    assert look() == (None, {}, [])


def test_tags_and_sources_that_were_never_read_are_not_withdrawn() -> None:
    """Without the permission to read them, nothing is known about them."""
    fake: Any = Fake({"orders": PLAIN})
    fake.fail = {"ListQueueTags": "AccessDenied", "ListDeadLetterSourceQueues": "AccessDenied"}
    [event] = read_account(fake, DiscoveryConfig())
    assert event["attributes"].keys().isdisjoint(("tags", "dead_letter_sources"))


def test_concurrent_calls_are_limited() -> None:
    """There are never more than the configured number."""
    at_once = [0, 0]
    lock, full = threading.Lock(), threading.Event()

    class Slow(Fake):
        def get_queue_attributes(self, **params: Any) -> dict[str, Any]:
            with lock:
                at_once[0] += 1
                at_once[1] = max(at_once)
                if at_once[0] == 4:
                    full.set()
            full.wait(10)
            time.sleep(0.01)  # in which a fifth call would be seen
            with lock:
                at_once[0] -= 1
            return super().get_queue_attributes(**params)

    slow: Any = Slow({f"q{n}": PLAIN for n in range(30)})
    reader = AccountReader(slow, DiscoveryConfig(with_dead_letter_queues=False), concurrency=4)
    reader.discover(RUNNING)
    assert len(read(reader)) == 30
    assert at_once[1] == 4


def test_the_runner_starts_the_collector_from_configuration(moto_sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`queuewatch collect sqs` does the same."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    account = Account(moto_sqs.endpoint)
    account.queue("a")
    stop = threading.Event()
    kept = Kept()
    send = kept.send

    def send_and_stop(payload: bytes) -> None:
        send(payload)
        stop.set()

    kept.send = send_and_stop  # type: ignore[method-assign]
    config = {
        "regions": ["us-east-1"],
        "endpoint_url": moto_sqs.endpoint,
        "discovery": {"prefixes": [account.prefix]},
    }
    assert run_collector("sqs", config, kept, stop) == 2
    assert [event["type"] for event in kept.events()] == ["queue_state", "heartbeat"]


def test_a_missing_region_or_profile_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not retried, because only an operator can fix it."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    with pytest.raises(CollectorRefused, match=r"collect\.sqs\.regions"):
        SqsCollector.from_config(SqsCollectorConfig())
    with pytest.raises(CollectorRefused, match="nobody"):
        SqsCollector.from_config(SqsCollectorConfig(profile="nobody"))


def test_a_queue_named_by_url_in_a_region_that_is_not_read_is_refused() -> None:
    """SQS would answer that it does not exist, and heartbeats would go on. A stand-in's URL names no region."""
    clients: list[Any] = [Regional("eu-west-1", "orders"), Regional("us-east-1", "orders")]
    foreign = "https://sqs.eu-central-1.amazonaws.com/1/orders"
    for url in (clients[0].url("orders"), "http://localhost:9324/000000000000/orders"):
        SqsCollector(SqsCollectorConfig(discovery=DiscoveryConfig(urls=(url,))), clients)
    with pytest.raises(CollectorRefused, match=r"in eu-central-1, .*\(eu-west-1, us-east-1\): add .* to collect\.sqs\.regions"):
        SqsCollector(SqsCollectorConfig(discovery=DiscoveryConfig(urls=(clients[0].url("orders"), foreign))), clients)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"interval": 5}, "interval"),
        ({"discovery": {"urls": ["orders"]}}, "is not a queue URL"),
        ({"telemetry": {"queue": "no such name!"}}, "neither a queue's name nor its URL"),
        (
            {
                "telemetry": {"queue": "telemetry"},
                "discovery": {"urls": ["https://sqs.eu-west-1.amazonaws.com/1/telemetry"]},
            },
            "is also watched",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(wrong: dict[str, Any], says: str) -> None:
    """The refusal comes before any call."""
    with pytest.raises(ValidationError, match=says):
        SqsCollectorConfig(**wrong)


def test_a_telemetry_queue_that_discovery_finds_is_refused() -> None:
    """Receiving from a watched queue would take its consumers' messages."""
    fake: Any = Fake(QUEUES)
    config = SqsCollectorConfig(telemetry={"queue": "telemetry"})  # type: ignore[arg-type]

    def receive(**_: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return {}

    fake.receive_message = receive
    fake.get_queue_url = lambda **_: {"QueueUrl": fake.url("telemetry")}
    with pytest.raises(CollectorRefused, match=r"collect\.sqs\.discovery\.exclude"):
        SqsCollector(config, [fake]).run(lambda _: None, threading.Event())
