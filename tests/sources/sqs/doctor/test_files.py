"""`doctor sqs` on code before it is deployed: Terraform plans, CloudFormation and SAM templates."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sources.sqs.doctor import examine_files
from sources.sqs.doctor.files import UnreadableFile, read_queues
from sources.sqs.doctor.settings import QueueSettings

DAY_S = 86_400
WORDS = (
    *("Ref", "Fn::GetAtt", "Fn::Sub", "Fn::Join", "Type", "Properties", "RedrivePolicy", "RedriveAllowPolicy", "QueueName"),
    *("deadLetterTargetArn", "maxReceiveCount", "sourceQueueArns", "redrivePermission", "root_module", "resources", "values"),
    *("redrive_policy", "visibility_timeout_seconds", "child_modules", "module_calls", "expressions", "references"),
)
"""Keys with a meaning for at least one of the readers."""
REGION_AND_ACCOUNT = "arn:aws:sqs:${AWS::Region}:${AWS::AccountId}"
BY_QUEUE = "{MessageRetentionPeriod: 1209600, RedriveAllowPolicy: {redrivePermission: byQueue, sourceQueueArns: [!Sub '%s:%s']}}"
ARN = "arn:aws:sqs:eu-west-1:123456789012:"


def written(folder: Path, name: str, content: str | dict[str, Any]) -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def rules(path: Path, **processing_s: float) -> list[tuple[str | None, str]]:
    """Return the queue and rule of each finding."""
    return sorted((finding.queue or "", finding.rule) for finding in examine_files([path], processing_s=processing_s).findings)


def queues(path: Path) -> dict[str, QueueSettings]:
    """Return the settings read, by queue name."""
    return {queue.name: queue for queue in read_queues(path).by_key.values()}


# -- Terraform --

SQS_VALUES = {
    "content_based_deduplication": False,
    "delay_seconds": 0,
    "fifo_queue": False,
    "kms_master_key_id": None,
    "max_message_size": 262144,
    "message_retention_seconds": 4 * DAY_S,
    "receive_wait_time_seconds": 0,
    "visibility_timeout_seconds": 180,
}
COMPUTED = ("arn", "id", "url", "redrive_policy", "redrive_allow_policy", "sqs_managed_sse_enabled", "deduplication_scope")


class Plan:
    """A plan in the form `terraform show -json` writes for resources to be created."""

    def __init__(self) -> None:
        self.planned: dict[str, list[dict[str, Any]]] = {}
        self.changes: list[dict[str, Any]] = []
        self.configured: dict[str, Any] = {"resources": [], "module_calls": {}}

    def add(self, address: str, *, refer: dict[str, list[str]] | None = None, **values: Any) -> Plan:
        """Add a resource. The attributes in `refer` are unknown until the apply and refer to other resources."""
        module, _, own = address.rpartition(".aws_")
        own = f"aws_{own}" if module else address
        type_, name = own.split("[")[0].split(".")[:2]
        if type_ == "aws_sqs_queue":
            values = {key: value for key, value in SQS_VALUES.items() if key not in (refer or {})} | values
        refer = refer or {}
        unknown = {key: True for key in (*COMPUTED, *refer) if key not in values}
        entry = {"address": address, "mode": "managed", "type": type_, "name": name, "values": values}
        self.planned.setdefault(module, []).append(entry)
        change = {"actions": ["create"], "before": None, "after": values, "after_unknown": unknown}
        self.changes.append({"address": address, "mode": "managed", "type": type_, "change": change})
        expressions: dict[str, Any] = {key: {"references": references} for key, references in refer.items()}
        expressions |= {key: {"constant_value": value} for key, value in values.items() if key not in SQS_VALUES}
        resources = self.module(module)["resources"]
        if not any(found["address"] == own.split("[")[0] for found in resources):
            resources.append({"address": own.split("[")[0], "type": type_, "name": name, "expressions": expressions})
        return self

    def module(self, address: str) -> dict[str, Any]:
        """Return the configuration of a module."""
        found = self.configured
        for part in address.split("module.")[1:]:
            name = part.strip(".").split("[")[0]
            call = found["module_calls"].setdefault(name, {"module": {"resources": [], "module_calls": {}, "outputs": {}}})
            found = call["module"]
        return found

    def write(self, folder: Path) -> Path:
        """Write the plan as a file."""
        children = [{"address": m, "resources": r} for m, r in self.planned.items() if m]
        root = {"resources": self.planned.get("", []), "child_modules": children}
        document = {
            "format_version": "1.2",
            "planned_values": {"root_module": root},
            "resource_changes": self.changes,
            "configuration": {"root_module": self.configured},
        }
        return written(folder, "plan.json", document)


def to(*references: str) -> dict[str, list[str]]:
    """Return references of a redrive policy that jsonencode builds from resources that do not exist yet."""
    return {"redrive_policy": list(references)}


def test_a_plan_of_new_queues_is_resolved_by_references(tmp_path: Path) -> None:
    """The dead-letter queue's ARN is unknown before the apply, and so is the redrive policy."""
    plan = Plan()
    plan.add("aws_sqs_queue.orders", name="orders", refer=to("aws_sqs_queue.dlq.arn", "aws_sqs_queue.dlq"))
    plan.add("aws_sqs_queue.dlq", name="orders-failed", message_retention_seconds=14 * DAY_S)
    path = plan.write(tmp_path)
    assert rules(path) == []
    assert rules(path, orders=181) == [("orders", "short_visibility")]


def test_every_rule_that_code_can_violate(tmp_path: Path) -> None:
    """The plan violates each rule."""
    plan = Plan()
    plan.add("aws_sqs_queue.lonely", name="lonely", sqs_managed_sse_enabled=False)
    plan.add("aws_sqs_queue.short", name="short", refer=to("aws_sqs_queue.failed.arn"))
    plan.add("aws_sqs_queue.failed", name="failed", redrive_allow_policy='{"redrivePermission":"denyAll"}')
    plan.add("aws_sqs_queue.mixed", name="mixed.fifo", fifo_queue=True, refer=to("aws_sqs_queue.failed.arn"))
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}old", "maxReceiveCount": 1})
    plan.add("aws_sqs_queue.single", name="single", redrive_policy=policy)
    policy = policy.replace("eu-west-1", "eu-west-2")
    plan.add("aws_sqs_queue.abroad", name="abroad", arn=f"{ARN}abroad", redrive_policy=policy.replace("1}", "3}"))
    plan.add(
        "aws_sqs_queue.half",
        name="half-dlq.fifo",
        fifo_queue=True,
        deduplication_scope="messageGroup",
        fifo_throughput_limit="perQueue",
    )
    assert rules(plan.write(tmp_path)) == [
        ("abroad", "dead_letter_queue_elsewhere"),
        ("half-dlq.fifo", "fifo_throughput"),
        ("lonely", "no_dead_letter_queue"),
        ("lonely", "unencrypted"),
        ("mixed.fifo", "allow_policy"),
        ("mixed.fifo", "redrive_type_mismatch"),
        ("short", "allow_policy"),
        ("short", "dead_letter_retention"),
        ("single", "single_receive"),
    ]


def test_policies_as_separate_resources(tmp_path: Path) -> None:
    """They are aws_sqs_queue_redrive_policy and aws_sqs_queue_redrive_allow_policy."""
    plan = Plan().add("aws_sqs_queue.orders", name="orders").add("aws_sqs_queue.failed", name="failed")
    path = plan.write(tmp_path)
    assert rules(path) == [("failed", "no_dead_letter_queue"), ("orders", "no_dead_letter_queue")]
    plan.add(
        "aws_sqs_queue_redrive_policy.orders", refer={"queue_url": ["aws_sqs_queue.orders.id"], **to("aws_sqs_queue.failed.arn")}
    )
    assert rules(plan.write(tmp_path)) == [("orders", "dead_letter_retention")]
    allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [f"{ARN}others"]})
    plan.add(
        "aws_sqs_queue_redrive_allow_policy.failed", redrive_allow_policy=allow, refer={"queue_url": ["aws_sqs_queue.failed.id"]}
    )
    assert rules(plan.write(tmp_path)) == [("orders", "allow_policy"), ("orders", "dead_letter_retention")]


def test_lambda_functions_of_a_plan(tmp_path: Path) -> None:
    """The timeout, the batching window and the response types come from three resources."""
    plan = Plan()
    plan.add("aws_sqs_queue.orders", name="orders", refer=to("aws_sqs_queue.failed.arn"))
    plan.add("aws_sqs_queue.failed", name="failed", message_retention_seconds=14 * DAY_S)
    plan.add("aws_lambda_function.work", function_name="work", timeout=29)
    mapping: dict[str, Any] = {
        "batch_size": 10,
        "maximum_batching_window_in_seconds": 6,
        "function_response_types": ["ReportBatchItemFailures"],
    }
    refer = {"event_source_arn": ["aws_sqs_queue.orders.arn"], "function_name": ["aws_lambda_function.work.arn"]}
    plan.add("aws_lambda_event_source_mapping.orders", refer=refer, **mapping)
    assert rules(plan.write(tmp_path)) == []
    plan.planned[""][-1]["values"]["maximum_batching_window_in_seconds"] = 7
    plan.planned[""][-1]["values"]["function_response_types"] = None
    assert rules(plan.write(tmp_path)) == [("orders", "lambda_batching_window"), ("orders", "whole_batch_fails")]


def test_a_disabled_mapping_of_a_plan_is_no_consumer(tmp_path: Path) -> None:
    """Its function's timeout, longer than the visibility timeout, concerns no message. An unset value means enabled."""
    plan = Plan()
    plan.add("aws_sqs_queue.orders", name="orders", refer=to("aws_sqs_queue.failed.arn"))
    plan.add("aws_sqs_queue.failed", name="failed", message_retention_seconds=14 * DAY_S)
    plan.add("aws_lambda_function.work", function_name="work", timeout=600)
    refer = {"event_source_arn": ["aws_sqs_queue.orders.arn"], "function_name": ["aws_lambda_function.work.arn"]}
    plan.add("aws_lambda_event_source_mapping.orders", refer=refer, enabled=False)
    assert rules(plan.write(tmp_path)) == []
    plan.planned[""][-1]["values"]["enabled"] = None
    assert rules(plan.write(tmp_path)) == [("orders", "lambda_visibility")]


def test_references_are_followed_through_modules(tmp_path: Path) -> None:
    """They lead into a module through its variable and out of one through its output."""
    plan = Plan()
    plan.add("module.orders.aws_sqs_queue.this[0]", name="orders", refer=to("var.dead_letter_arn"))
    plan.add("module.failed.aws_sqs_queue.this[0]", name="failed", message_retention_seconds=60)
    plan.configured["module_calls"]["orders"]["expressions"] = {
        "dead_letter_arn": {"references": ["module.failed.arn", "module.failed"]}
    }
    plan.module("module.failed")["outputs"]["arn"] = {
        "expression": {"references": ["aws_sqs_queue.this[0].arn", "aws_sqs_queue.this[0]"]}
    }
    assert rules(plan.write(tmp_path)) == [("orders", "dead_letter_retention")]


def test_for_each_instances_are_matched_by_key(tmp_path: Path) -> None:
    """The dead-letter queue of an instance is the one with the same for_each key."""
    plan = Plan()
    for key in ("a", "b"):
        plan.add(f'aws_sqs_queue.main["{key}"]', name=f"main-{key}", refer=to("aws_sqs_queue.failed", "each.key"))
        retention_s = 60 if key == "b" else 14 * DAY_S
        plan.add(f'aws_sqs_queue.failed["{key}"]', name=f"failed-{key}", message_retention_seconds=retention_s)
    assert rules(plan.write(tmp_path)) == [("main-b", "dead_letter_retention")]


def test_a_queue_of_the_same_name_in_another_region_is_another_queue(tmp_path: Path) -> None:
    """ARNs are compared in full."""
    policy = {"deadLetterTargetArn": f"{ARN}failed".replace("eu-west-1", "us-east-1"), "maxReceiveCount": 3}
    plan = Plan().add("aws_sqs_queue.orders", name="orders", arn=f"{ARN}orders", redrive_policy=json.dumps(policy))
    plan.add("aws_sqs_queue.failed", name="failed-dlq", arn=f"{ARN}failed")
    assert rules(plan.write(tmp_path)) == [("orders", "dead_letter_queue_elsewhere")]


def test_unknown_values_are_not_guessed(tmp_path: Path) -> None:
    """A redrive policy from an unresolved reference counts as one with an unknown target."""
    plan = Plan().add("aws_sqs_queue.orders", name="orders", refer=to("local.policy"))
    plan.add("aws_sqs_queue.keyed", refer={"name_prefix": ["var.x"], "kms_master_key_id": ["aws_kms_key.k.arn"], **to("local.p")})
    path = plan.write(tmp_path)
    assert rules(path) == []
    assert queues(path)["orders"].encrypted is None
    assert queues(path)["aws_sqs_queue.keyed"].encrypted is True


# -- CloudFormation --

TEMPLATE = """
Parameters:
  Timeout: {Type: Number, Default: 31}
Resources:
  Orders:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: orders
      VisibilityTimeout: 180
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Failed.Arn, maxReceiveCount: 5}
  Failed:
    Type: AWS::SQS::Queue
    Properties: {MessageRetentionPeriod: 1209600}
  Work:
    Type: AWS::Lambda::Function
    Properties: {FunctionName: work, Timeout: !Ref Timeout}
  Mapping:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      EventSourceArn: !GetAtt Orders.Arn
      FunctionName: !Ref Work
      FunctionResponseTypes: [ReportBatchItemFailures]
"""


def test_a_retention_is_at_most_fourteen_days(tmp_path: Path) -> None:
    """A dead-letter queue that keeps messages for so long cannot keep them for longer."""
    named = "QueueName: orders"
    as_long = written(tmp_path, "t.yaml", TEMPLATE.replace(named, f"{named}\n      MessageRetentionPeriod: 1209600"))
    (found,) = (finding for finding in examine_files([as_long]).findings if finding.rule == "dead_letter_retention")
    assert str(found.fix).startswith("Shorten the retention of orders")


def test_a_template_with_short_form_functions_is_read(tmp_path: Path) -> None:
    """References, and parameters with a default, are resolved."""
    assert rules(written(tmp_path, "t.yaml", TEMPLATE)) == [("orders", "lambda_visibility")]
    assert rules(written(tmp_path, "t.yaml", TEMPLATE.replace("Default: 31", "Default: 30"))) == []


@pytest.mark.parametrize(
    ("resource", "timeout_s"),
    [
        ("{Type: AWS::Lambda::Alias, Properties: {FunctionName: !Ref Work, FunctionVersion: '1', Name: live}}", 31),
        ("{Type: AWS::Lambda::Version, Properties: {FunctionName: !GetAtt Work.Arn}}", 31),
        ("{Type: AWS::Lambda::Alias, Properties: {FunctionName: elsewhere, Name: live}}", None),
        ("{Type: AWS::Lambda::Alias, Properties: {FunctionName: !Ref Live}}", None),
        ("{Type: AWS::CloudFormation::Stack, Properties: {TemplateURL: 'https://example.org/t'}}", None),
    ],
)
def test_a_mapping_leads_through_an_alias_to_its_function(tmp_path: Path, resource: str, timeout_s: float | None) -> None:
    """An alias has no timeout; it was taken for a function with the default one, of three seconds."""
    template = TEMPLATE.replace("FunctionName: !Ref Work\n", "FunctionName: !Ref Live\n") + f"  Live: {resource}\n"
    [consumer] = queues(written(tmp_path, "t.yaml", template))["orders"].consumers
    assert consumer.timeout_s == timeout_s
    assert consumer.function == ("work" if timeout_s else "of another template" if "Alias" in resource else "Live")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("1209600", "345600", [("orders", "dead_letter_retention")]),
        ("{MessageRetentionPeriod: 1209600}", "{}", [("orders", "dead_letter_retention")]),
        ("maxReceiveCount: 5", "maxReceiveCount: 1", [("orders", "single_receive")]),
        (
            "{MessageRetentionPeriod: 1209600}",
            "{FifoQueue: true}",
            [("orders", "dead_letter_retention"), ("orders", "redrive_type_mismatch")],
        ),
        (
            "      RedrivePolicy: {deadLetterTargetArn: !GetAtt Failed.Arn, maxReceiveCount: 5}\n",
            "",
            [("Failed", "no_dead_letter_queue"), ("orders", "no_dead_letter_queue")],
        ),
        ("QueueName: orders", "QueueName: orders\n      SqsManagedSseEnabled: false", [("orders", "unencrypted")]),
        ("QueueName: orders", "QueueName: orders\n      SqsManagedSseEnabled: false\n      KmsMasterKeyId: !Ref Key", []),
        ("QueueName: orders", "QueueName: !Sub '${AWS::StackName}-orders'", []),
        ("!GetAtt Failed.Arn", "{'Fn::GetAtt': [Failed, Arn]}", []),
        ("!GetAtt Failed.Arn", "!ImportValue other-stack", [("Failed", "no_dead_letter_queue")]),
        (
            "{deadLetterTargetArn: !GetAtt Failed.Arn, maxReceiveCount: 5}",
            "!If [Has, {maxReceiveCount: 1}, !Ref AWS::NoValue]",
            [("Failed", "no_dead_letter_queue")],
        ),
        # A parameter without a default is unknown, whatever its name.
        (
            "{deadLetterTargetArn: !GetAtt Failed.Arn, maxReceiveCount: 5}",
            "!Ref PolicyOrNoValue",
            [("Failed", "no_dead_letter_queue")],
        ),
        (
            "{deadLetterTargetArn: !GetAtt Failed.Arn, maxReceiveCount: 5}",
            "!Ref AWS::NoValue",
            [("Failed", "no_dead_letter_queue"), ("orders", "no_dead_letter_queue")],
        ),
        ("VisibilityTimeout: 180", "VisibilityTimeout: !Ref Unknown", []),
        ("      VisibilityTimeout: 180\n", "", [("orders", "lambda_visibility")]),
        ("[ReportBatchItemFailures]", "[]", [("orders", "whole_batch_fails")]),
        (
            "[ReportBatchItemFailures]",
            "[ReportBatchItemFailures]\n      MaximumBatchingWindowInSeconds: 1",
            [("orders", "lambda_batching_window")],
        ),
        (
            "{MessageRetentionPeriod: 1209600}",
            BY_QUEUE % (REGION_AND_ACCOUNT, "orders"),
            [],
        ),
        (
            "{MessageRetentionPeriod: 1209600}",
            BY_QUEUE % (REGION_AND_ACCOUNT, "others"),
            [("orders", "allow_policy")],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_change_to_a_good_template(tmp_path: Path, before: str, after: str, expected: list[tuple[str, str]]) -> None:
    """Each change to a template without findings causes exactly the expected findings."""
    good = TEMPLATE.replace("Default: 31", "Default: 30")
    assert before in good
    assert rules(written(tmp_path, "t.yaml", good.replace(before, after))) == expected


def test_a_possible_dead_letter_queue_has_severity_info(tmp_path: Path) -> None:
    """The template does not say whose dead-letter queue it is."""
    path = written(tmp_path, "t.yaml", TEMPLATE.replace("!GetAtt Failed.Arn", "!ImportValue other-stack"))
    found = {finding.rule: finding.severity for finding in examine_files([path]).findings}
    assert found["no_dead_letter_queue"] == "info"


def test_sam_events_are_consumers(tmp_path: Path) -> None:
    """The function's timeout may be set under Globals."""
    template = """
Transform: AWS::Serverless-2016-10-31
Globals: {Function: {Timeout: 60}}
Resources:
  Jobs:
    Type: AWS::SQS::Queue
    Properties: {VisibilityTimeout: 60, RedrivePolicy: {deadLetterTargetArn: !GetAtt JobsDLQ.Arn, maxReceiveCount: 5}}
  JobsDLQ: {Type: AWS::SQS::Queue, Properties: {MessageRetentionPeriod: 1209600}}
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Jobs: {Type: SQS, Properties: {Queue: !GetAtt Jobs.Arn, BatchSize: 1}}
        Web: {Type: Api, Properties: {Path: /}}
"""
    assert rules(written(tmp_path, "template.yaml", template)) == [("Jobs", "lambda_visibility")]


def test_json_templates_are_read_too(tmp_path: Path) -> None:
    """The CDK writes them with ARNs by Fn::GetAtt and leaves the names to CloudFormation."""
    policy = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead1234", "Arn"]}, "maxReceiveCount": 3}
    resources = {
        "Jobs5678": {"Type": "AWS::SQS::Queue", "Properties": {"RedrivePolicy": policy}},
        "Dead1234": {"Type": "AWS::SQS::Queue"},
    }
    assert rules(written(tmp_path, "stack.template.json", {"Resources": resources})) == [("Jobs5678", "dead_letter_retention")]


# -- files in neither format --


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04plan", "terraform show -json"),
        (b"\xff\xfe\x00x", "is not text"),
        (b"a: [", "neither JSON nor YAML"),
        (b"Resources: {created: 2024-99-99}", "neither JSON nor YAML: month must be in 1..12"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{a: " * 100_000, "nested too deeply"),
        (b'{"a": 1}', "no planned_values and no Resources"),
        (b"", "no planned_values and no Resources"),
        (b"just words", "no planned_values and no Resources"),
    ],
)
def test_a_file_in_neither_format_is_refused_with_a_fix(tmp_path: Path, content: bytes, says: str) -> None:
    """The error names the file."""
    path = tmp_path / "tfplan"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match="tfplan") as refused:
        read_queues(path)
    assert says in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error has the path and the reason."""
    with pytest.raises(UnreadableFile, match=r"gone\.json: No such file"):
        read_queues(tmp_path / "gone.json")


_MAPPING = {
    "Type": "AWS::Lambda::EventSourceMapping",
    "Properties": {"EventSourceArn": {"Ref": "Q"}, "FunctionName": {"Ref": "F"}},
}
_MALFORMED = {
    "a queue": ({"Q": {"Type": "AWS::SQS::Queue", "Properties": ["QueueName"]}}, "Properties of resource Q"),
    "an empty list": ({"Q": {"Type": "AWS::SQS::Queue", "Properties": []}}, "Properties of resource Q"),
    "a resource that a value refers to": (
        {
            "Q": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": {"Fn::Sub": "${Stage}-jobs"}}},
            "Stage": {"Type": "Custom::Stage", "Properties": "prod"},
        },
        "Properties of resource Stage",
    ),
    "a consumer": (
        {"Q": {"Type": "AWS::SQS::Queue"}, "M": _MAPPING, "F": {"Type": "Custom::Function", "Properties": "worker"}},
        "Properties of resource F",
    ),
    "events": ({"F": {"Type": "AWS::Serverless::Function", "Properties": {"Events": ["Jobs"]}}}, "Events of resource F"),
    "an event": (
        {"F": {"Type": "AWS::Serverless::Function", "Properties": {"Events": {"Jobs": {"Type": "SQS", "Properties": "Q"}}}}},
        "Properties of event Jobs of resource F",
    ),
}


@pytest.mark.parametrize(("resources", "named"), _MALFORMED.values(), ids=_MALFORMED)
def test_a_resource_whose_properties_are_no_mapping_is_named(tmp_path: Path, resources: dict[str, Any], named: str) -> None:
    """The error says where to correct the template, in its own words."""
    with pytest.raises(UnreadableFile) as refused:
        read_queues(written(tmp_path, "t.json", {"Resources": resources}))
    assert str(refused.value) == f"{tmp_path / 't.json'}: {named} must be a mapping of names to values"


@pytest.mark.parametrize("resources", [{"A": None}, {"A": {"Type": "AWS::SQS::Queue", "Properties": None}}, {"A": {"Type": 1}}])
def test_malformed_resources_do_not_stop_the_reader(tmp_path: Path, resources: dict[str, Any]) -> None:
    """A resource without a usable shape has no settings."""
    read_queues(written(tmp_path, "t.json", {"Resources": resources}))


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", "1" + "0" * 400])
def test_a_number_in_a_template_that_no_setting_can_be_is_unknown(tmp_path: Path, number: str) -> None:
    """Nothing is concluded from it."""
    mapping = f"{{BatchSize: {number}, EventSourceArn: !GetAtt Q.Arn, FunctionName: f}}"
    queue = f"{{Type: AWS::SQS::Queue, Properties: {{VisibilityTimeout: {number}}}}}"
    path = written(tmp_path, "t.yaml", f"Resources: {{Q: {queue}, M: {{Type: {_MAPPING['Type']}, Properties: {mapping}}}}}")
    found = queues(path)["Q"]
    assert (found.visibility_timeout_s, found.consumers[0].batch_size) == (None, None)
    examine_files([path])


def test_a_number_in_a_plan_that_no_setting_can_be_is_unknown(tmp_path: Path) -> None:
    """JSON has numbers of any size."""
    values = {"name": "q", "visibility_timeout_seconds": 10**400, "message_retention_seconds": float("inf")}
    resource = {"address": "aws_sqs_queue.q", "mode": "managed", "type": "aws_sqs_queue", "name": "q", "values": values}
    path = written(tmp_path, "plan.json", {"planned_values": {"root_module": {"resources": [resource]}}})
    found = queues(path)["q"]
    assert (found.visibility_timeout_s, found.retention_s) == (None, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(JSON, st.sampled_from(["template", "plan", "state"]))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_document_is_read_or_refused(tmp_path: Path, document: Any, form: str) -> None:
    """Unexpected values anywhere cause at most an UnreadableFile error."""
    if form == "template":
        document = {"Resources": {"Q": {"Type": "AWS::SQS::Queue", "Properties": document}, "R": document}}
    elif form == "plan":
        resource = {"address": "aws_sqs_queue.q", "mode": "managed", "type": "aws_sqs_queue", "name": "q", "values": document}
        document = {"planned_values": {"root_module": {"resources": [resource]}}, "configuration": document}
    else:
        document = {"format_version": "1.0", "values": document}
    path = written(tmp_path, "any.json", json.dumps(document))
    with contextlib.suppress(UnreadableFile):
        examine_files([path])
