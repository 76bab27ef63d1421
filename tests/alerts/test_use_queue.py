"""`use_queue` of the runbook's shell for Amazon SQS, run by bash: the variables of the checks, for every kind of queue."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import jmespath  # type: ignore[import-untyped]
import pytest
from botocore import xform_name

from alerts.checks import sqs
from tests.services.moto_sqs import MotoSqs

_AWS = """\
#!/bin/sh
printf '%s\\0' "$AWS_DEFAULT_REGION" "$@" | curl -fsS --noproxy '*' --data-binary @- {url}
"""
"""The AWS CLI as far as `use_queue` calls it. It asks the test: a Python with boto3 would take half a second at each call."""


class _Cli(BaseHTTPRequestHandler):
    """Does what the AWS CLI would do with its arguments, and answers with its output."""

    endpoint: str

    def do_POST(self) -> None:
        region, *words, _ = self.rfile.read(int(self.headers["Content-Length"])).decode().split("\0")
        answer = f"{_output(self.endpoint, region, words)}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _output(endpoint: str, region: str, words: Sequence[str]) -> object:
    service, operation, *options = words
    given = dict(zip(options[::2], options[1::2], strict=True))
    query = given.pop("--query")
    assert (service, given.pop("--output")) == ("sqs", "text")
    client = _client(endpoint, region)
    model = client.meta.service_model
    names = {xform_name(name, "-"): name for name in model.operation_names}
    members = model.operation_model(names[operation]).input_shape.members
    known = {"--" + xform_name(name, "-"): (name, shape) for name, shape in members.items()}
    call = {known[k][0]: [v] if known[k][1].type_name == "list" else v for k, v in given.items()}
    return jmespath.search(query, getattr(client, operation.replace("-", "_"))(**call))


@cache
def _client(endpoint: str, region: str) -> Any:
    return boto3.client("sqs", region, endpoint_url=endpoint, aws_access_key_id="testing", aws_secret_access_key="testing")


@pytest.fixture
def environment(tmp_path: Path, moto_sqs: MotoSqs, sqs_environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """An environment with that `aws` on PATH, in a region of moto."""
    handler = type("Handler", (_Cli,), {"endpoint": moto_sqs.endpoint})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        aws = tmp_path / "aws"
        aws.write_text(_AWS.format(url=f"http://127.0.0.1:{server.server_port}"))
        aws.chmod(0o755)
        yield {**sqs_environment, "PATH": f"{tmp_path}{os.pathsep}{sqs_environment['PATH']}", "AWS_DEFAULT_REGION": "elsewhere"}
        server.shutdown()
        thread.join()


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
    client = _client(moto_sqs.endpoint, "eu-west-1")
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
