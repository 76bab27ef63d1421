"""The library in an application's own environment, installed from the wheel, beside its packages and frameworks."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.services import sqs
from tests.spooled import spooled

_OWNED = ("sources", "alerts", "streaming", "sinks")


def _run(python: Path, environment: dict[str, str], *arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `queuewatch-instrument python ARG…` in the application's environment."""
    command = [str(python.with_name("queuewatch-instrument")), str(python), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=environment | more)


def _kinds(folder: Path) -> dict[str, int]:
    return dict(Counter(event["type"] for event in spooled(folder)))


@pytest.mark.parametrize("how", ["in code", "from outside"])
def test_packages_of_the_application_may_have_the_names_of_the_services(
    application: Path, sqs_environment: dict[str, str], tmp_path: Path, how: str
) -> None:
    """If `sources`, `alerts`, `streaming` and `sinks` are the application's own packages, telemetry still works."""
    app, spool = tmp_path / "app", tmp_path / "spool"
    for name in _OWNED:
        (app / name).mkdir(parents=True)
        (app / name / "__init__.py").write_text(f"WHOSE = 'the application {name}'\n")
    watching = f"from queuewatch import watch\nwatch(client, to={f'spool:{spool}'!r})" if how == "in code" else ""
    (app / "main.py").write_text(f"""
import sources, alerts, streaming, sinks
import boto3
print(sources.WHOSE, alerts.WHOSE, streaming.WHOSE, sinks.WHOSE)
client = boto3.client("sqs")
{watching}
url = client.create_queue(QueueName="q-{uuid.uuid4().hex}")["QueueUrl"]
client.send_message(QueueUrl=url, MessageBody="x")
[message] = client.receive_message(QueueUrl=url, WaitTimeSeconds=2)["Messages"]
client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
""")
    if how == "in code":
        command = [str(application), "main.py"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=app, env=sqs_environment)
    else:
        done = _run(application, sqs_environment, "main.py", cwd=app, QUEUEWATCH_TO=f"spool:{spool}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == " ".join(f"the application {name}" for name in _OWNED)
    assert _kinds(spool) == {"sent": 1, "received": 1, "deleted": 1}


def test_python_m_queuewatch_says_where_the_service_commands_are(application: Path, tmp_path: Path) -> None:
    """The library has no service commands; its help says so instead of failing with a traceback."""
    assert not application.with_name("queuewatch").exists()
    done = subprocess.run(
        [str(application), "-m", "queuewatch", "--help"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "queuewatch-service: not installed here" in done.stdout


_ASYNC_LIFE = """
async def life(client):
    url = (await client.create_queue(QueueName=uuid.uuid4().hex))["QueueUrl"]
    await client.send_message(QueueUrl=url, MessageBody="x")
    answer = await client.receive_message(QueueUrl=url, WaitTimeSeconds=2, MessageSystemAttributeNames=["SenderId"])
    [message] = answer["Messages"]
    assert set(message["Attributes"]) == {"SenderId"}
    await client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""
_AIOBOTO3 = f"""
import asyncio, uuid
import aioboto3
{_ASYNC_LIFE}
async def main():
    session = aioboto3.Session()
    WATCH
    async with session.client("sqs") as client:
        await life(client)
    async with session.resource("sqs") as resource:
        queue = await resource.create_queue(QueueName=uuid.uuid4().hex)
        await queue.send_message(MessageBody="x")
        [message] = await queue.receive_messages(WaitTimeSeconds=2)
        await message.delete()
asyncio.run(main())
"""
_AIOBOTOCORE = f"""
import asyncio, uuid
from aiobotocore.session import get_session
{_ASYNC_LIFE}
async def main():
    session = get_session()
    WATCH
    async with session.create_client("sqs") as client:
        await asyncio.gather(life(client), life(client))
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["in code", "from outside"])
@pytest.mark.parametrize("program", [_AIOBOTO3, _AIOBOTOCORE], ids=["aioboto3", "aiobotocore"])
def test_asynchronous_clients_are_watched(
    application: Path, sqs_environment: dict[str, str], tmp_path: Path, program: str, how: str
) -> None:
    """The hooks are the same as for boto3 and do not block the event loop."""
    watching = f"from queuewatch import watch; watch(session, to={f'spool:{tmp_path}'!r})"
    if how == "in code":
        command = [str(application), "-c", program.replace("WATCH", watching)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=sqs_environment)
    else:
        program = program.replace("WATCH", "")
        done = _run(application, sqs_environment, "-c", program, cwd=tmp_path, QUEUEWATCH_TO=f"spool:{tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert _kinds(tmp_path) == {"sent": 2, "received": 2, "deleted": 2}


_PATCHED_LATE = """
import boto3, sys, threading
from queuewatch import watch
client = boto3.client("sqs")
watching = watch(client, to=sys.argv[1])
from gevent import monkey
monkey.patch_all()
url = client.create_queue(QueueName=sys.argv[2])["QueueUrl"]
client.send_message(QueueUrl=url, MessageBody="x")
thread = threading.Thread(target=client.send_message, kwargs={"QueueUrl": url, "MessageBody": "y"})
thread.start()
thread.join()
assert watching.flush(20)
"""


@pytest.mark.parametrize("to", ["spool", "kafka"])
def test_gevent_may_patch_after_the_import_of_the_library(
    application: Path, sqs_environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest, to: str
) -> None:
    """The sender is then a green thread of the only thread: it must not wait with classes from before the patch.

    `gunicorn --preload -k gevent` imports the application in this order. A sender that waits so stops the application for good.
    """
    url = f"spool:{tmp_path}"
    if to == "kafka":
        kafka = request.getfixturevalue("kafka")
        url = f"kafka://{kafka.bootstrap}/{kafka.create_topic()}"
    command = [str(application), "-W", "ignore", "-c", _PATCHED_LATE, url, f"q-{uuid.uuid4().hex}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=sqs_environment)
    assert (done.returncode, done.stderr) == (0, "")
    if to == "spool":
        assert _kinds(tmp_path) == {"sent": 2}


_TASKS = """
import os, signal
from urllib.parse import urlsplit
from celery import Celery
endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL_SQS"])
app = Celery("tasks", broker=f"sqs://testing:testing@{endpoint.hostname}:{endpoint.port}//")
app.conf.update(
    broker_transport_options={"is_secure": False, "region": "us-east-1", "polling_interval": 0.1, "wait_time_seconds": 1},
    task_default_queue=os.environ["QUEUE"],
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)
@app.task
def work(number):
    print("worked", number, flush=True)
"""


def _words_of_worker(command: list[str], folder: Path, environment: dict[str, str], until: str, times: int) -> tuple[str, int]:
    """Run a Celery worker until it has printed a word this often, and end it. Return its output and exit code."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as worker:
        timer = threading.Timer(60, worker.kill)
        timer.start()
        try:
            assert worker.stdout is not None
            words = ""
            while words.count(until) < times and (line := worker.stdout.readline()):
                words += line
            time.sleep(1)  # for the last acknowledgement
            worker.terminate()
            words += worker.stdout.read()
            return words, worker.wait()
        finally:
            timer.cancel()
            worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_only_sends_of_celery_are_seen(application: Path, sqs_environment: dict[str, str], tmp_path: Path, pool: str) -> None:
    """Receives and deletions are not reported, as docs/celery.md says.

    A worker receives without boto3, so the messages that it deletes are unknown. It runs and stops as without the hooks.
    """
    spool = tmp_path / "spool"
    environment = sqs_environment | {"QUEUEWATCH_TO": f"spool:{spool}", "QUEUE": f"celery-{uuid.uuid4().hex[:8]}"}
    (tmp_path / "tasks.py").write_text(_TASKS)
    instrument = [str(application.with_name("queuewatch-instrument")), str(application)]
    send = [*instrument, "-c", "import tasks\nfor n in range(3): tasks.work.delay(n)"]
    subprocess.run(send, check=True, cwd=tmp_path, env=environment, timeout=60)
    command = [
        *instrument,
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "-P",
        pool,
        "-c",
        "1",
        "--without-gossip",
        "--without-mingle",
    ]
    words, _ = _words_of_worker(command, tmp_path, environment, until="worked", times=3)
    assert words.count("worked") == 3, words
    assert "Traceback" not in words
    assert _kinds(spool) == {"sent": 3}


_FORWARDS = f"""{_TASKS}
import boto3
app.conf.worker_max_tasks_per_child = 1
@app.task
def forward(number):
    boto3.client("sqs").send_message(QueueUrl=os.environ["OUT"], MessageBody=str(number))
    print("forwarded", number, flush=True)
"""


@pytest.mark.slow
def test_children_of_a_celery_worker_send_what_they_saw(
    application: Path, sqs_environment: dict[str, str], tmp_path: Path
) -> None:
    """Celery ends a child by `os._exit` after a number of tasks, and with the worker. Here tasks call SQS by boto3 themselves."""
    spool = tmp_path / "spool"
    out = sqs.client(sqs_environment["AWS_ENDPOINT_URL_SQS"]).create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    environment = sqs_environment | {"QUEUE": f"celery-{uuid.uuid4().hex[:8]}", "OUT": out, "QUEUEWATCH_TO": f"spool:{spool}"}
    (tmp_path / "tasks.py").write_text(_FORWARDS)
    send = [str(application), "-c", "import tasks\nfor n in range(4): tasks.forward.delay(n)"]
    subprocess.run(send, check=True, cwd=tmp_path, env=environment, timeout=60)
    command = [str(application.with_name("queuewatch-instrument")), str(application), "-m", "celery", "-A", "tasks", "worker"]
    command += ["-P", "prefork", "-c", "2", "--without-gossip", "--without-mingle"]
    words, code = _words_of_worker(command, tmp_path, environment, until="forwarded", times=4)
    assert (words.count("forwarded"), code) == (4, 0), words
    assert _kinds(spool) == {"sent": 4}
