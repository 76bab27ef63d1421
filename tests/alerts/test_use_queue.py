"""`use_queue` of the runbook's shell for Amazon SQS, run by bash: the variables of the checks, for every kind of queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import boto3
import pytest

from alerts.checks import sqs
from tests.services.moto_sqs import MotoSqs

_AWS = """\
#!{python}
import sys, boto3, jmespath
from botocore import xform_name
operation, words = sys.argv[2], sys.argv[3:]
given = dict(zip(words[::2], words[1::2]))
query = given.pop("--query"); assert given.pop("--output") == "text"
client = boto3.client("sqs")
names = {{xform_name(name, "-"): name for name in client.meta.service_model.operation_names}}
members = client.meta.service_model.operation_model(names[operation]).input_shape.members
known = {{"--" + xform_name(name, "-"): (name, shape) for name, shape in members.items()}}
call = {{known[k][0]: [v] if known[k][1].type_name == "list" else v for k, v in given.items()}}
answer = jmespath.search(query, getattr(client, operation.replace("-", "_"))(**call))
print(answer)
"""
"""The AWS CLI as far as `use_queue` calls it, in this environment's boto3."""


@pytest.fixture
def environment(tmp_path: Path, sqs_environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with that `aws` on PATH, in a region of moto."""
    aws = tmp_path / "aws"
    aws.write_text(_AWS.format(python=sys.executable))
    aws.chmod(0o755)
    return {**sqs_environment, "PATH": f"{tmp_path}{os.pathsep}{sqs_environment['PATH']}", "AWS_DEFAULT_REGION": "elsewhere"}


def test_both_versions_of_the_aws_cli_get_the_region(environment: dict[str, str]) -> None:
    """Version 1 reads only AWS_DEFAULT_REGION, and would ask another region, or none."""
    script = f"{sqs.PREPARE}\necho $AWS_REGION $AWS_DEFAULT_REGION"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["eu-west-1", "eu-west-1"]


def _variables(environment: Mapping[str, str], first: str, then: str) -> dict[str, str]:
    names = ("QUEUE", "QUEUE_URL", "QUEUE_ARN", "DLQ_ARN", "DLQ_URL")
    script = f"{sqs.PREPARE}\n{then}\n" + "\n".join(f'echo "{name}=${name}"' for name in names)
    done = subprocess.run(
        ["bash", "-c", script], env={**environment, "QUEUE": first}, capture_output=True, text=True, timeout=60, check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_use_queue_sets_the_variables_of_source_and_dead_letter_queues(environment: dict[str, str], moto_sqs: MotoSqs) -> None:
    """An alert about a dead-letter queue names that queue: its checks need DLQ_ARN, and then those of the source queue."""
    client = boto3.client(
        "sqs", "eu-west-1", endpoint_url=moto_sqs.endpoint, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    name = uuid.uuid4().hex
    dead_url = client.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
    dead_arn = client.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": "3"})
    url = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": redrive})["QueueUrl"]
    client.create_queue(QueueName=f"{name}-alone")

    source = _variables(environment, name, "")
    assert (source["QUEUE_URL"], source["DLQ_ARN"], source["DLQ_URL"]) == (url, dead_arn, dead_url)

    dead = _variables(environment, f"{name}-dlq", "")
    assert (dead["QUEUE_ARN"], dead["DLQ_ARN"], dead["DLQ_URL"]) == (dead_arn, dead_arn, dead_url)

    assert _variables(environment, f"{name}-dlq", f"use_queue {name}") == source

    alone = _variables(environment, f"{name}-alone", "")
    assert (alone["DLQ_ARN"], alone["DLQ_URL"]) == ("", "")


def test_the_time_range_of_the_checks_needs_no_gnu_date() -> None:
    """macOS has no `date -d`; seconds since 1970 are a time for the AWS CLI, and with three digits more for its logs."""
    assert "date -d" not in "\n".join((sqs.PREPARE, sqs.error_logs("").command, sqs.message_logs("").command))
    assert "date -u" not in sqs.PREPARE
