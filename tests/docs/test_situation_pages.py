"""The pages by the reader's situation, run as they stand: the proxy, Celery, ActiveMQ, Cloudflare.

Others are in `test_client_pages`, and Lambda's in `tests/client/aws_lambda/test_docs.py`.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import queuewatch.cloudflare
from tests.client.pull_broker import Broker, Held, serving
from tests.docs.test_client_pages import APPLICATION, BROKER, bash, blocks, found_first, kinds
from tests.services import application as application_service
from tests.services import sqs
from tests.services.process import free_port
from tests.waiting import until
from tests.wheels import ROOT

_SITUATIONS = {
    "docs/python-service.md",
    "docs/lambda.md",
    "docs/proxy.md",
    "docs/celery.md",
    "docs/cloudflare.md",
    "docs/activemq.md",
    "docs/read-access.md",
    "docs/partial-telemetry.md",
    "docs/coverage.md",
}
_TASKS = """
import os
from celery import Celery
{page}
app.conf.update(task_default_queue=os.environ["QUEUE"], worker_enable_remote_control=False)
@app.task
def work(number):
    return number
"""
_PROXY = "127.0.0.1:9410"
_TELEMETRY = "https://queuewatch.example.org/api/v1/events"


def test_the_readme_says_where_to_start() -> None:
    """A row for each situation, before it is explained how anything works, and each with one page to go to."""
    table = (ROOT / "README.md").read_text().partition("## Start with your system")[2].partition("\n\nThen ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "---" not in row][1:]
    assert {page for row in rows for page in re.findall(r"\]\(([^)]+)\)", row)} == _SITUATIONS
    assert all(len(re.findall(r"\]\(", row)) == 1 for row in rows), rows


def _through_a_proxy(page: str, environment: dict[str, str], spool: Path) -> tuple[str, dict[str, str]]:
    """The page's commands and their environment: the proxy goes to the stand-in, is waited for, and ends with the script."""
    listen = f"127.0.0.1:{free_port()}"
    script = blocks(page, "sh")[-1].replace(BROKER, f"spool:{spool}?max_age_s=0.1").replace(_PROXY, listen)
    up = "&\nuntil queuewatch-proxy --check 2>>check.log; do sleep 0.2; done\n"
    assert script.count("&\n") == 1
    more = {"QUEUEWATCH_PROXY_LISTEN": listen, "QUEUEWATCH_PROXY_ENDPOINTS": environment["AWS_ENDPOINT_URL_SQS"]}
    without = {name: value for name, value in environment.items() if name != "AWS_ENDPOINT_URL_SQS"}
    return "trap 'kill $(jobs -p); wait' EXIT\n" + script.replace("&\n", up), without | more


def test_an_application_is_followed_through_the_proxy(application: Path, sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """docs/proxy.md: any program whose SDK reads the variable."""
    program = tmp_path / "your-application"
    program.write_text(f"#!{application}\n{APPLICATION}")
    program.chmod(0o755)
    script, environment = _through_a_proxy("docs/proxy.md", sqs_environment, tmp_path / "spool")
    done = bash(script, found_first(application.parent, environment), tmp_path)
    assert done.returncode == 0, done.stderr
    assert kinds(tmp_path / "spool") == ["sent", "received", "deleted"]


@pytest.mark.slow
def test_a_celery_worker_is_followed_through_the_proxy(application: Path, elasticmq: Any, tmp_path: Path) -> None:
    """docs/celery.md: sends, receives and acknowledgements, which the hooks do not see."""
    (tmp_path / "tasks.py").write_text(_TASKS.format(page="\n".join(blocks("docs/celery.md", "python"))))
    spool = tmp_path / "spool"
    script, environment = _through_a_proxy("docs/celery.md", application_service.variables(elasticmq.endpoint), spool)
    send = "python -c 'import tasks; [tasks.work.delay(n) for n in range(3)]'\n"
    script = script.replace("python -m celery", f"{send}python -m celery")
    environment = found_first(application.parent, environment) | {"QUEUE": f"celery-{uuid.uuid4().hex[:8]}"}
    with _started(["bash", "-euc", script], environment, tmp_path):
        until(lambda: Counter(kinds(spool))["deleted"] == 3, "three deletions are reported", within_s=120)
    assert Counter(kinds(spool)) == {"sent": 3, "received": 3, "deleted": 3}


@pytest.mark.slow
def test_an_activemq_broker_is_examined_and_collected(activemq: Any, tmp_path: Path) -> None:
    """docs/activemq.md: its configuration but for the broker's address and login, and its two commands."""
    config = yaml.safe_load(blocks("docs/activemq.md", "yaml")[0])
    section = config["collect"]["activemq"]
    for name in ("username", "password_file", "tls"):
        del section[name]
    section["addresses"] = [f"stomp://{activemq.host}:{activemq.stomp_port}"]
    config["collect"]["to"] = f"spool:{tmp_path / 'spool'}"
    (tmp_path / "queuewatch.yaml").write_text(yaml.safe_dump(config))
    environment = found_first(Path(sys.executable).parent, dict(os.environ))
    doctor, collect = [line.partition("#")[0].strip() for line in blocks("docs/activemq.md", "sh")[0].splitlines()]
    done = bash(doctor, environment, tmp_path)
    assert done.returncode in (0, 1), done.stderr  # a broker that is slow to answer is a finding
    assert "connection: logged in" in done.stdout
    with _started(collect.split(), environment, tmp_path):
        until(lambda: "heartbeat" in kinds(tmp_path / "spool"), "a heartbeat is reported", within_s=120)


def test_a_pull_consumer_of_cloudflare_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/cloudflare.md: the program it shows, against what the API is published to do."""
    [program] = [block for block in blocks("docs/cloudflare.md", "python") if "PullConsumer" in block]
    broker = Broker(messages=[Held(f"m{n}", 1_750_000_000_000) for n in range(2)])
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token")
    with serving(broker):
        pull_consumer = functools.partial(queuewatch.cloudflare.PullConsumer, base_url=broker.url)
        monkeypatch.setattr(queuewatch.cloudflare, "PullConsumer", pull_consumer)
        assert _TELEMETRY in program
        exec(program.replace(_TELEMETRY, f"spool:{tmp_path}"), {})
    assert Counter(kinds(tmp_path)) == {"received": 2, "deleted": 2}


def test_what_is_misconfigured_is_found_with_read_access(sqs_environment: dict[str, str], moto_sqs: Any, tmp_path: Path) -> None:
    """docs/read-access.md: the doctor, without a configuration; it only reads."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    sqs.client(moto_sqs.endpoint).create_queue(QueueName=name)
    [script] = [block for block in blocks("docs/read-access.md", "sh") if "doctor" in block]
    done = bash(script, found_first(Path(sys.executable).parent, sqs_environment), tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert name in done.stdout


@contextmanager
def _started(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A command that would run for ever, and whatever it starts, while the block lasts."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
