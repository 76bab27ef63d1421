"""`doctor sqs` on an account: what it reads, what it never calls, and how many calls a thousand queues take."""

from __future__ import annotations

import fnmatch
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sources.collect import CollectorRefused
from sources.doctor import Examination
from sources.sqs.config import DiscoveryConfig, SqsCollectorConfig
from sources.sqs.doctor import examine_account
from sources.sqs.doctor.account import RegionReader
from sources.sqs.doctor.permissions import POLICY, NotPermitted, allowed_actions, read_only
from sources.sqs.doctor.rules import findings
from tests.proxy.fake_sqs import JSON, fake_sqs
from tests.sources.sqs.accounts import Account, Fake, Regional

REGION = "us-east-1"
WELL = {"VisibilityTimeout": "180", "SqsManagedSseEnabled": "true"}


@pytest.fixture
def _login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials that are valid nowhere."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def _aws(_login: None) -> Iterator[None]:
    """Mock SQS, Lambda and IAM in this process."""
    with mock_aws(config={"lambda": {"use_docker": False}}):
        yield


@pytest.fixture
def move_tasks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Add ListMessageMoveTasks, which moto lacks; it returns the tasks that the test adds to the list."""
    from moto.sqs.responses import SQSResponse

    tasks: list[dict[str, Any]] = []
    monkeypatch.setattr(SQSResponse, "list_message_move_tasks", lambda _: json.dumps({"Results": tasks}), raising=False)
    return tasks


def function(name: str, timeout_s: int) -> str:
    """Create a Lambda function and return its ARN."""
    role = boto3.client("iam").create_role(RoleName=f"{name}-role", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("work.py", "def handle(event, context): pass")
    made = boto3.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role=role,
        Handler="work.handle",
        Code={"ZipFile": code.getvalue()},
        Timeout=timeout_s,
    )
    return str(made["FunctionArn"])


def queue(name: str, dead_letters: str | None = None, receives: int = 5, **attributes: str) -> str:
    """Create a queue and return its ARN."""
    client = boto3.client("sqs")
    if dead_letters is not None:
        attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": dead_letters, "maxReceiveCount": receives})
    url = client.create_queue(QueueName=name, Attributes=WELL | attributes)["QueueUrl"]  # type: ignore[arg-type]
    return client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def rules(examination: Examination) -> list[tuple[str | None, str]]:
    """Return the queue and rule of each finding."""
    return sorted((finding.queue or "", finding.rule) for finding in examination.findings)


@pytest.mark.usefixtures("_aws")
def test_an_account_is_examined_with_its_lambda_functions(move_tasks: list[dict[str, Any]]) -> None:
    """One examination covers queue settings, functions and redrive tasks."""
    dlq = queue("orders-dlq", MessageRetentionPeriod="1209600")
    orders = queue("orders", dlq, receives=1)
    queue("mail", queue("mail-dlq", MessageRetentionPeriod="1209600"))
    boto3.client("lambda").create_event_source_mapping(EventSourceArn=orders, FunctionName=function("work", 31), BatchSize=10)
    boto3.client("sqs").send_message(
        QueueUrl=boto3.client("sqs").get_queue_url(QueueName="orders-dlq")["QueueUrl"], MessageBody="x"
    )
    move_tasks.append({"Status": "FAILED", "FailureReason": "CouldNotDetermineMessageSource", "StartedTimestamp": 1})
    examination = examine_account(SqsCollectorConfig())
    assert rules(examination) == [
        ("mail-dlq", "redrive_failed"),
        ("orders", "lambda_visibility"),
        ("orders", "single_receive"),
        ("orders", "whole_batch_fails"),
        ("orders-dlq", "dead_letters_waiting"),
        ("orders-dlq", "redrive_failed"),
    ]
    assert examination.passed == ["mail"]
    assert {finding.scope for finding in examination.findings} == {"123456789012/us-east-1"}


@pytest.mark.usefixtures("_aws", "move_tasks")
def test_function_versions_have_timeouts_of_their_own() -> None:
    """The list of functions contains only the latest versions; a version that a mapping names is requested."""
    dlq = queue("dlq", MessageRetentionPeriod="1209600")
    arn = function("work", 200)
    client = boto3.client("lambda")
    version = client.publish_version(FunctionName="work")["FunctionArn"]
    client.update_function_configuration(FunctionName="work", Timeout=5)
    client.create_event_source_mapping(
        EventSourceArn=queue("a", dlq), FunctionName=version, FunctionResponseTypes=["ReportBatchItemFailures"]
    )
    client.create_event_source_mapping(
        EventSourceArn=queue("b", dlq), FunctionName=arn, FunctionResponseTypes=["ReportBatchItemFailures"]
    )
    assert rules(examine_account(SqsCollectorConfig())) == [("a", "lambda_visibility")]


@pytest.mark.usefixtures("_aws", "move_tasks")
def test_queues_are_examined_without_access_to_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding of severity info says that Lambda was not examined."""
    from botocore.exceptions import ClientError

    from sources.sqs.doctor.lambdas import Consumers

    def refused(_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListEventSourceMappings")

    monkeypatch.setattr(Consumers, "read", refused)
    queue("mail", queue("mail-dlq", MessageRetentionPeriod="1209600"))
    examination = examine_account(SqsCollectorConfig())
    [finding] = examination.findings
    assert (finding.rule, finding.severity) == ("not_examined", "info")
    assert "iam-policy-doctor.json" in (finding.fix or "")


@pytest.mark.usefixtures("_aws", "move_tasks")
def test_lambda_that_does_not_answer_is_not_blamed_on_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subnet may have an endpoint for SQS and none for Lambda."""
    from botocore.exceptions import EndpointConnectionError

    from sources.sqs.doctor.lambdas import Consumers

    def unreachable(_: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="https://lambda.example")

    monkeypatch.setattr(Consumers, "read", unreachable)
    queue("mail", queue("mail-dlq", MessageRetentionPeriod="1209600"))
    [finding] = examine_account(SqsCollectorConfig()).findings
    assert finding.fix == "Check the network, and try again."


@pytest.mark.usefixtures("_login")
@pytest.mark.parametrize(("endpoint", "asked"), [("http://127.0.0.1:1", []), ("https://127.0.0.1:1/amazonaws.com", ["lambda"])])
def test_lambda_is_not_asked_beside_a_stand_in_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, asked: list[str]
) -> None:
    """The functions of the login's real account do not consume a stand-in's queues; those beside a VPC endpoint do."""
    made: list[str] = []

    def make(_: SqsCollectorConfig) -> list[None]:
        made.append("lambda")
        return [None]

    monkeypatch.setattr("sources.sqs.doctor.examine.make_lambda_clients", make)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", endpoint)
    examine_account(SqsCollectorConfig())
    assert made == asked


@pytest.mark.usefixtures("_login")
def test_an_endpoint_without_a_scheme_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The AWS SDK only says that it is invalid, and the variable may be set where no configuration is used."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "127.0.0.1:9324")
    with pytest.raises(CollectorRefused, match=r"begins with http:// or https://.*AWS_ENDPOINT_URL_SQS"):
        examine_account(SqsCollectorConfig())


@pytest.mark.usefixtures("_login")
def test_missing_credentials_are_a_finding_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding is critical: nothing was examined."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    [finding] = examine_account(SqsCollectorConfig()).findings
    assert (finding.rule, finding.severity, finding.scope) == ("not_examined", "critical", REGION)
    assert "credentials" in finding.summary
    assert "--profile" in (finding.fix or "")


@pytest.mark.usefixtures("_login")
def test_an_endpoint_that_does_not_answer_is_a_finding_with_a_fix() -> None:
    """A mistyped region has no endpoint: a login would not help."""
    [finding] = examine_account(SqsCollectorConfig(endpoint_url="http://127.0.0.1:1")).findings
    assert (finding.rule, finding.severity) == ("not_examined", "critical")
    assert (finding.fix or "").startswith(f"Check the region's name, {REGION}, the network")


@pytest.mark.usefixtures("_login")
def test_an_https_endpoint_without_tls_is_a_finding_that_says_what_to_change() -> None:
    """The network and the region are right; only the URL is not."""
    with fake_sqs(lambda _: (200, JSON, b"{}")) as plain:
        [finding] = examine_account(SqsCollectorConfig(endpoint_url=plain.endpoint.replace("http:", "https:"))).findings
    assert (finding.fix or "").startswith("This port does not speak TLS: use http:// instead of https://")
    assert "AWS_ENDPOINT_URL_SQS" in (finding.fix or "")


# -- only reads, and only what the policy lists --


def _allowed(action: str, resource: str) -> bool:
    """Return whether the shipped policy allows a call; as in IAM, one statement must match action and resource."""
    for statement in json.loads(POLICY.read_text())["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        if action in actions and fnmatch.fnmatchcase(resource, statement["Resource"]):
            return bool(statement["Effect"] == "Allow")
    return False


def _resource(params: dict[str, Any]) -> str:
    """Return the ARN a call is about, or `*` where IAM has none."""
    if "QueueUrl" in params:
        account, name = params["QueueUrl"].split("/")[-2:]
        return f"arn:aws:sqs:{REGION}:{account}:{name}"
    return str(params.get("SourceArn") or params.get("FunctionName") or "*")


@pytest.mark.slow
@pytest.mark.usefixtures("_aws", "move_tasks")
def test_calls_and_shipped_policy_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is allowed with its resource, and every allowed action is called at least once."""
    calls: set[tuple[str, str]] = set()

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        calls.add((f"{model.service_model.endpoint_prefix}:{model.name}", _resource(params)))

    def noted(client: Any) -> Any:
        client.meta.events.register("before-parameter-build", note)
        return read_only(client)

    dlq = queue("orders-dlq")
    orders = queue("orders", dlq)
    function("work", 3)
    version = boto3.client("lambda").publish_version(FunctionName="work")["FunctionArn"]
    boto3.client("lambda").create_event_source_mapping(EventSourceArn=orders, FunctionName=version)
    monkeypatch.setattr("sources.sqs.doctor.examine.read_only", noted)
    examine_account(SqsCollectorConfig())
    examine_account(SqsCollectorConfig(discovery=DiscoveryConfig(prefixes=("orders",), tags={"team": "*"})))
    examine_account(SqsCollectorConfig(discovery=DiscoveryConfig(prefixes=("orders-",))))
    assert [call for call in calls if not _allowed(*call)] == []
    assert {action for action, _ in calls} == allowed_actions()


@pytest.mark.slow
@pytest.mark.usefixtures("_aws")
def test_a_call_outside_the_policy_is_not_made() -> None:
    """The read-only client refuses it whatever the credentials allow."""
    made = queue("orders")
    client = read_only(boto3.client("sqs"))
    url = client.list_queues()["QueueUrls"][0]
    for call, params in (
        ("receive_message", {"QueueUrl": url}),
        ("purge_queue", {"QueueUrl": url}),
        ("set_queue_attributes", {"QueueUrl": url, "Attributes": {}}),
        ("start_message_move_task", {"SourceArn": made}),
    ):
        with pytest.raises(NotPermitted):
            getattr(client, call)(**params)


def test_the_policy_allows_only_reads() -> None:
    """No wildcard hides a write."""
    assert all(action.split(":")[1].startswith(("Get", "List")) for action in allowed_actions())
    assert "*" not in "".join(allowed_actions())
    assert (Path(__file__).parents[4] / "docs" / "sqs.md").read_text().count(POLICY.name)


# -- a real SQS server --


def test_settings_are_read_from_elasticmq(elasticmq: Any) -> None:
    """FIFO type, retention and maxReceiveCount are as the server reports them; Lambda is not queried."""
    account = Account(elasticmq.endpoint)
    dlq = account.queue("dead.fifo", FifoQueue="true")
    account.queue("pay.fifo", FifoQueue="true", RedrivePolicy=account.redrive_to(dlq, receives=1))
    account.queue("lonely")
    client = read_only(account.client)
    reader = RegionReader(client, DiscoveryConfig(prefixes=(account.prefix,)), concurrency=16)
    found = [*findings(reader.read()), *reader.findings]
    own = {(str(finding.queue).removeprefix(account.prefix), finding.rule) for finding in found}
    assert {("pay.fifo", "single_receive"), ("lonely", "no_dead_letter_queue")} <= own
    assert not [rule for name, rule in own if name == "dead.fifo" and rule in ("no_dead_letter_queue", "not_examined")]
    assert not [rule for _, rule in own if rule == "dead_letter_retention"]


# -- parts of an account --

DLQ_OF = '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:%s","maxReceiveCount":5}'


def read(fake: Fake, **discovery: Any) -> tuple[list[tuple[str | None, str]], RegionReader]:
    """Return the findings of a fake account."""
    client: Any = fake
    reader = RegionReader(client, DiscoveryConfig(**discovery), concurrency=16)
    found = [*findings(reader.read()), *reader.findings]
    return sorted((finding.queue or "", finding.rule) for finding in found), reader


def test_dead_letter_queues_that_the_filter_leaves_out_are_read() -> None:
    """A dead-letter queue that does not exist is a finding."""
    fake = Fake({"orders": {"RedrivePolicy": DLQ_OF % "failed"}, "failed": {"MessageRetentionPeriod": "60"}})
    fake.queues["orders"]["MessageRetentionPeriod"] = "60"
    assert read(fake, prefixes=["orders"])[0] == [("orders", "dead_letter_retention")]
    del fake.queues["failed"]
    assert read(fake, prefixes=["orders"])[0] == [("orders", "dead_letter_queue_missing")]
    fake.fail = {("GetQueueAttributes", "failed"): "AccessDenied"}
    assert read(fake, prefixes=["orders"])[0] == [("failed", "not_examined")]


def test_sources_that_the_filter_leaves_out_make_a_dead_letter_queue() -> None:
    """The sources are requested only where the filter may hide them."""
    fake = Fake({"orders": {"RedrivePolicy": DLQ_OF % "failed"}, "failed": {"ApproximateNumberOfMessages": "3"}, "lonely": {}})
    assert read(fake, prefixes=["failed"])[0] == [("failed", "dead_letters_waiting")]
    assert "ListDeadLetterSourceQueues" in fake.calls
    fake.calls.clear()
    assert read(fake)[0] == [("failed", "dead_letters_waiting"), ("lonely", "no_dead_letter_queue")]
    assert "ListDeadLetterSourceQueues" not in fake.calls


def test_an_error_concerns_only_its_queue() -> None:
    """A queue deleted in the meantime is not an error."""
    fake = Fake({"a": {}, "b": {}, "c": {}})
    fake.fail = {("GetQueueAttributes", "a"): "AccessDenied", ("GetQueueAttributes", "b"): "QueueDoesNotExist"}
    found, reader = read(fake)
    assert found == [("a", "not_examined"), ("c", "no_dead_letter_queue")]
    assert reader.findings[0].scope == "1/eu-west-1"


def test_a_queue_named_by_url_that_does_not_exist_is_a_finding() -> None:
    """A mistyped URL would otherwise pass as nothing to examine."""
    found, reader = read(Fake({}), urls=["https://sqs.eu-west-1.amazonaws.com/1/odrers"])
    assert found == [("odrers", "not_examined")]
    assert "QueueDoesNotExist" in reader.findings[0].summary


@pytest.mark.usefixtures("_aws")
@pytest.mark.parametrize(
    ("discovery", "summary", "fix"),
    [
        ({"prefixes": ["odrers-"]}, "no queue whose name starts with odrers- in us-east-1", "Check the filter, the region, "),
        ({"include": ["odrers-*"]}, "no queue that collect.sqs.discovery selects in us-east-1", "Check the filter, the region, "),
        ({}, "no queue in us-east-1", "Check the region, and which account"),
    ],
)
def test_an_account_without_queues_is_a_finding(discovery: dict[str, Any], summary: str, fix: str) -> None:
    """A mistyped filter or another account's login would otherwise pass as nothing to fix."""
    if discovery:
        boto3.client("sqs").create_queue(QueueName="orders-eu")
    examination = examine_account(SqsCollectorConfig.model_validate({"discovery": discovery}))
    [finding] = examination.findings
    assert (finding.rule, finding.severity, finding.queue) == ("no_queue", "warning", None)
    assert summary in finding.summary
    assert (finding.fix or "").startswith(fix)


def test_a_call_that_a_stand_in_lacks_is_not_blamed_on_the_login() -> None:
    """It answers with 500."""
    fake = Fake({"orders": {}, "dlq": {}})
    fake.queues["orders"] = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:dlq"})}
    fake.fail = {("ListMessageMoveTasks", "dlq"): "InternalError"}
    fixes = {finding.rule: finding.fix for finding in read(fake)[1].findings}
    assert fixes == {
        "not_examined": "Try again. Some stand-ins for SQS do not implement ListMessageMoveTasks: there, ignore this."
    }


def test_an_answer_without_attributes_is_not_a_queue_without_a_dead_letter_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore turns a proxy's page of HTML, or half of an answer, into an answer without attributes."""
    fake = Fake({"a": {}})
    monkeypatch.setattr(fake, "get_queue_attributes", lambda **_: {})
    assert read(fake)[0] == [("a", "not_examined")]


def test_a_queue_named_by_url_is_examined_in_its_own_region_only() -> None:
    """In another region SQS answers that it does not exist."""
    clients: list[Any] = [Regional("eu-west-1", "orders"), Regional("us-east-1", "orders")]
    regions = [client.meta.region_name for client in clients]
    discovery = DiscoveryConfig(urls=tuple(client.url("orders") for client in clients))
    scopes = []
    for client in clients:
        reader = RegionReader(client, discovery, regions=regions, concurrency=16)
        scopes += [queue.scope for queue in reader.read().by_key.values()]
        assert reader.findings == []
    assert scopes == ["1/eu-west-1", "1/us-east-1"]
    assert [client.foreign for client in clients] == [0, 0]


def test_an_unreadable_dead_letter_queue_is_reported_once() -> None:
    """It is both listed and named by a redrive policy."""
    fake = Fake({"orders": {"RedrivePolicy": DLQ_OF % "failed"}, "failed": {}})
    fake.fail = {("GetQueueAttributes", "failed"): "AccessDenied"}
    assert read(fake)[0] == [("failed", "not_examined")]


def test_a_thousand_queues_take_1501_calls_16_at_a_time() -> None:
    """The 500 dead-letter queues need two calls each; at 50 ms a call the total is five seconds."""
    lock = threading.Lock()
    running = [0]
    most = [0]
    full = threading.Event()

    class Slow(Fake):
        def _called(self, operation: str, where: str) -> str:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
                if running[0] == 16:
                    full.set()
            if operation == "GetQueueAttributes":
                full.wait(10)
            time.sleep(0.001)  # in which a seventeenth call would be seen
            with lock:
                running[0] -= 1
            return super()._called(operation, where)

    sources = {f"q{n}": {"RedrivePolicy": DLQ_OF % f"d{n}"} for n in range(500)}
    slow = Slow(sources | {f"d{n}": {} for n in range(500)})
    assert read(slow)[0] == []
    assert len(slow.calls) == 1 + 1_000 + 500
    assert most[0] == 16
