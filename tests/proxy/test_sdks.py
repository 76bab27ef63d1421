"""Other SDKs, configured by one environment variable, get the same results as without the proxy, and are reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streaming.spark import jars
from tests.services import proxy as proxy_service
from tests.services import sdks, sqs
from tests.services.elasticmq import ElasticMQ
from tests.services.node import Node
from tests.services.proxy import Proxy
from tests.waiting import until

SDKS = Path(__file__).parents[1] / "sdks"


@pytest.fixture
def proxy(elasticmq: ElasticMQ) -> Iterator[Proxy]:
    """A proxy for one test."""
    with proxy_service.start(elasticmq.endpoint) as made:
        yield made


def run(command: Sequence[str | Path], endpoint: str, **more: str) -> str:
    """Return the output of a program whose SQS endpoint is `endpoint`."""
    env = {
        **os.environ,
        "AWS_ENDPOINT_URL_SQS": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "app",
        "AWS_SECRET_ACCESS_KEY": "app",
        "AWS_EC2_METADATA_DISABLED": "true",
        **more,
    }
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=240, cwd=SDKS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def new_queue(elasticmq: ElasticMQ) -> tuple[str, str]:
    """Create a queue with a name that no other test uses; return name and URL."""
    name = f"q-{uuid.uuid4().hex[:10]}"
    return name, sqs.client(elasticmq.endpoint).create_queue(QueueName=name)["QueueUrl"]


def lives_a_message(elasticmq: ElasticMQ, proxy: Proxy, command: Sequence[str | Path]) -> None:
    """Check that the program prints the same with and without the proxy, and that its message is reported."""
    name, _ = new_queue(elasticmq)
    direct, proxied = (run([*command, name], endpoint) for endpoint in (elasticmq.endpoint, proxy.endpoint))
    assert json.loads(proxied) == json.loads(direct) == {"body": "héllo", "attributes": 0}
    events = proxy.events()
    assert [event["type"] for event in events] == ["sent", "received", "extended", "deleted"]
    assert len({event["message_id"] for event in events}) == 1
    assert {event["queue"] for event in events} == {name}


def test_aioboto3(elasticmq: ElasticMQ, proxy: Proxy) -> None:
    """aioboto3 uses asyncio, with aiobotocore below."""
    lives_a_message(elasticmq, proxy, [sdks.require("asyncio-celery").python, SDKS / "life_aio.py"])


def test_the_sdk_for_javascript(elasticmq: ElasticMQ, proxy: Proxy, node: Node) -> None:
    """The SDK is version 3, on Node."""
    lives_a_message(elasticmq, proxy, [node.executable, SDKS / "life.mjs"])


def test_the_sdk_for_go(elasticmq: ElasticMQ, proxy: Proxy, tmp_path: Path) -> None:
    """The SDK is version 2. If Go or its modules are missing, the test is skipped, also in CI."""
    program = tmp_path / "life"
    _built(["go", "build", "-o", str(program), "."], SDKS / "go")
    lives_a_message(elasticmq, proxy, [program])


def test_the_sdk_for_java(elasticmq: ElasticMQ, proxy: Proxy, tmp_path: Path) -> None:
    """The SDK is version 2. If Maven or the jars are missing, the test is skipped, also in CI."""
    try:
        jars.resolve(SDKS / "java" / "pom.xml")
    except jars.JarsUnavailable as missing:
        pytest.skip(str(missing))
    sdk = f"{jars.cached(SDKS / 'java' / 'pom.xml')}/*"
    # Java is short-lived here, as its compiler is: the quick compilation to machine code suffices.
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    _built(["javac", *(f"-J{option}" for option in quick), "-cp", sdk, "-d", str(tmp_path), "Life.java"], SDKS / "java")
    java = ["java", *quick, "-Dstdout.encoding=UTF-8", "-cp", f"{sdk}:{tmp_path}", "Life"]
    lives_a_message(elasticmq, proxy, java)


def _built(command: Sequence[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout)[-300:]}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_aws_cli(elasticmq: ElasticMQ, proxy: Proxy) -> None:
    """Each call is a process whose JSON output is compared. CLI version 1 needs `--endpoint-url`."""
    aws = sdks.require("awscli").program("aws")
    name, _ = new_queue(elasticmq)

    def cli(endpoint: str, *words: str) -> Any:
        # Version 1 sets an endpoint of its own for SQS, which overrides the variable.
        return json.loads(run([aws, "--endpoint-url", endpoint, "sqs", *words, "--output", "json"], endpoint) or "{}")

    def life(endpoint: str) -> list[Any]:
        url = cli(endpoint, "get-queue-url", "--queue-name", name)["QueueUrl"]
        sent = cli(endpoint, "send-message", "--queue-url", url, "--message-body", "héllo")
        [got] = cli(endpoint, "receive-message", "--queue-url", url)["Messages"]
        deleted = cli(endpoint, "delete-message", "--queue-url", url, "--receipt-handle", got["ReceiptHandle"])
        return [sorted(sent), sent["MD5OfMessageBody"], sorted(got), got["Body"], deleted]

    assert life(proxy.endpoint) == life(elasticmq.endpoint)
    assert [event["type"] for event in proxy.events()] == ["sent", "received", "deleted"]


def test_celery(elasticmq: ElasticMQ, proxy: Proxy) -> None:
    """Celery sends, receives and deletes without boto3's client, so hooks see nothing, but the proxy sees all calls."""
    python = sdks.require("asyncio-celery").python
    name, url = new_queue(elasticmq)
    send = "import celery_app; [celery_app.charge.delay(n) for n in range(3)]"
    run([python, "-c", send], proxy.endpoint, SHOP_QUEUE=name)
    worker = [str(python), "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "--without-mingle", "-l", "WARNING"]
    env = {**os.environ, "AWS_ENDPOINT_URL_SQS": proxy.endpoint, "SHOP_QUEUE": name, "AWS_DEFAULT_REGION": "us-east-1"}
    env |= {"AWS_ACCESS_KEY_ID": "app", "AWS_SECRET_ACCESS_KEY": "app"}
    process = subprocess.Popen(worker, cwd=SDKS, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: [event["type"] for event in proxy.events()].count("deleted") == 3, "three are deleted", 90, every_s=0.5)
    finally:
        process.terminate()
        process.wait(30)
    kinds = [event["type"] for event in proxy.events()]
    assert (kinds.count("sent"), kinds.count("received")) == (3, 3)
    assert proxy.stats()["unknown_handles"] == 0
    assert url
