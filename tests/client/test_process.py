"""The hooks in an application's process: fork, exit, multiprocessing, and a broken destination."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from queuewatch import watch
from sources.wire import decode_records
from tests.services import sqs
from tests.services.process import free_port
from tests.spooled import spooled

_PRELUDE = """
import os, sys, time, multiprocessing
import boto3
from queuewatch import watch
from sources.wire import decode_records
endpoint, to, queue = sys.argv[1:]
session = boto3.Session("testing", "testing", region_name="us-east-1")
client = session.client("sqs", endpoint_url=endpoint)
url = client.create_queue(QueueName=queue)["QueueUrl"]
watching = watch(client, to, exit_deadline_s=float(os.environ["DEADLINE_S"]))
def send(body):
    return client.send_message(QueueUrl=url, MessageBody=body)["MessageId"]
"""


def run(
    program: str, endpoint: str, to: str, *, deadline_s: float = 30.0, script: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a watched program in a process of its own; with `script` it is written there, for programs that import themselves."""
    text = _PRELUDE + program
    if script is not None:
        script.write_text(text)
    started = [sys.executable, str(script)] if script else [sys.executable, "-c", text]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "DEADLINE_S": str(deadline_s)}
    command = [*started, endpoint, to, f"p-{uuid.uuid4().hex[:8]}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_buffered_events_are_sent_at_exit(moto_sqs: Any, tmp_path: Path) -> None:
    """A short-lived program waits briefly for its telemetry."""
    done = run("print(send('x'))", moto_sqs.endpoint, f"spool:{tmp_path}")
    assert done.stderr == ""
    assert [event["message_id"] for event in spooled(tmp_path)] == done.stdout.split()


_FIRST_SENT_DURING_EXIT = """
import atexit, threading
from queuewatch import Transport
from queuewatch.sender import BackgroundSender
class Printing(Transport):
    name, max_bytes = "printing", 1000
    def send(self, payload):
        sending.set()
        exiting.wait()
        print(payload.decode(), end="", flush=True)
sending, exiting, registered = threading.Event(), threading.Event(), threading.Event()
sender = BackgroundSender(Printing(), linger_s=0.01)
sender.offer([{"n": 1}])
sending.wait()
sender._linger_s = 600
sender.offer([{"n": 2}])
def during_exit():
    register = atexit.register
    atexit.register = lambda *given: (register(*given), registered.set())
    exiting.set()
    registered.wait()
atexit.register(during_exit)
"""


def test_the_first_send_may_succeed_while_the_process_exits() -> None:
    """The sender's thread then registers for the exit again, but functions registered during an exit are never called."""
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_SENT_DURING_EXIT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ('{"n":1}\n{"n":2}\n', "")


_OFFERED_DURING_EXIT = """
import atexit, sys
from queuewatch import Transport
from queuewatch.sender import BackgroundSender
class Printing(Transport):
    name, max_bytes = "printing", 1000
    def send(self, payload): print(payload.decode(), end="", flush=True)
sender = BackgroundSender(Printing(), linger_s=0.01)
atexit.register(lambda: sender.offer([{"n": 2}]))
if sys.argv[1] == "works before":
    sender.offer([{"n": 1}])
    assert sender.flush(30)
"""


@pytest.mark.parametrize(("when", "sent"), [("works before", '{"n":1}\n{"n":2}\n'), ("only exits", '{"n":2}\n')])
def test_the_applications_exit_handlers_may_call_sqs(when: str, sent: str) -> None:
    """A consumer may delete or give back at its exit what it holds, and a script send its only message at its end."""
    command = [sys.executable, "-c", _OFFERED_DURING_EXIT, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (sent, "")


_BESIDE_A_DEAD_DESTINATION = """
from queuewatch import SendError, Transport
from queuewatch.sender import BackgroundSender
class Printing(Transport):
    name, max_bytes = "printing", 1000
    def send(self, payload): print(payload.decode(), end="", flush=True)
class Dead(Printing):
    def send(self, payload): raise SendError("down", retry=True)
for transport in (Printing(), Dead()):  # closed in reverse order
    BackgroundSender(transport, linger_s=600, exit_deadline_s=3).offer([{"n": 1}])
"""


def test_a_dead_destination_leaves_another_one_time_to_send_at_exit() -> None:
    """They share the deadline, so the second one sends while the process waits for the first."""
    command = [sys.executable, "-c", _BESIDE_A_DEAD_DESTINATION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == '{"n":1}\n'


_HANGING_DESTINATIONS = """
import atexit, sys, threading
from queuewatch import Transport
from queuewatch.sender import BackgroundSender
class Hanging(Transport):
    name, max_bytes = "hanging", 1000
    def send(self, payload): threading.Event().wait()
waits_s, join = [], threading.Thread.join
def recorded(thread, timeout=None):
    waits_s.append(timeout)
    join(thread, timeout)
threading.Thread.join = recorded
atexit.register(lambda: print(sum(waits_s)))  # exit handlers run in reverse order
for _ in range(int(sys.argv[1])):
    BackgroundSender(Hanging(), linger_s=0.01, exit_deadline_s=0.5).offer([{"n": 1}])
"""


@pytest.mark.parametrize("senders", [1, 6])
def test_senders_that_hang_delay_the_exit_together_as_long_as_one(senders: int) -> None:
    """The half second in which a sender may give up after the deadline is shared, like the deadline."""
    command = [sys.executable, "-c", _HANGING_DESTINATIONS, str(senders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert float(done.stdout) == pytest.approx(1.0), done.stderr


def test_a_kafka_producer_is_still_open_when_events_are_sent_at_exit(moto_sqs: Any, kafka: Any) -> None:
    """kafka-python closes its producers at exit too; the sender must run first, whether it had connected before or not."""
    from kafka import KafkaConsumer, TopicPartition

    topic = kafka.create_topic()
    program = "first = send('x'); watching.flush(); print(first, send('y'))"
    ids = run(program, moto_sqs.endpoint, f"kafka://{kafka.bootstrap}/{topic}").stdout.split()
    ids += run("print(send('z'))", moto_sqs.endpoint, f"kafka://{kafka.bootstrap}/{topic}").stdout.split()
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, consumer_timeout_ms=5000)
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        decoded = decode_records([next(consumer).value for _ in range(3)])
    assert decoded.invalid == []
    assert len(ids) == 3
    assert sorted(decoded.events["message_id"].to_pylist()) == sorted(ids)


def test_a_dead_broker_does_not_delay_the_exit(moto_sqs: Any) -> None:
    """The application sees the failure only in its log, and its process ends although the broker stays dead."""
    done = run("send('x')", moto_sqs.endpoint, f"kafka://127.0.0.1:{free_port()}/t", deadline_s=1.0)
    assert done.returncode == 0
    assert "no broker listens there" in done.stderr
    assert "Traceback" not in done.stderr


def test_parent_and_forked_child_each_send_their_own_events_once(moto_sqs: Any, tmp_path: Path) -> None:
    """Buffer, thread, open file and handles survive the fork of a pre-forking server."""
    program = """
message = send("before")
got = client.receive_message(QueueUrl=url)["Messages"][0]
child = os.fork()
if not child:
    client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    send("child")
    sys.exit(0)
send("parent")
assert os.waitpid(child, 0)[1] == 0
send("after")
watching.flush()
"""
    done = run(program, moto_sqs.endpoint, f"spool:{tmp_path}?max_age_s=60")
    assert done.returncode == 0, done.stderr
    found = spooled(tmp_path)
    assert sorted(event["type"] for event in found) == ["deleted", "received", *["sent"] * 4]
    consumers = {event["type"]: event["consumer"] for event in found if "consumer" in event}
    assert consumers["received"] != consumers["deleted"]  # each process has a consumer name of its own
    assert len({event["message_id"] for event in found}) == 4


def test_a_fork_while_the_sender_is_running_leaves_the_child_usable(moto_sqs: Any, tmp_path: Path) -> None:
    """No lock of the parent's thread stays held in the child."""
    program = """
import threading
stop = threading.Event()
def load():
    while not stop.is_set():
        watching._sender.sender.offer([{"type": "noise"}])
threads = [threading.Thread(target=load, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        watching._sender.sender.offer([{"type": "child"}])
        ok = watching.flush(10)
        os._exit(0 if ok else 3)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
"""
    done = run(program, moto_sqs.endpoint, f"spool:{tmp_path}")
    assert done.returncode == 0, done.stderr
    assert sum(event["type"] == "child" for event in spooled(tmp_path)) == 20


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_send_before_they_exit(moto_sqs: Any, tmp_path: Path, method: str) -> None:
    """Such children skip atexit functions."""
    body = f"""
def work():
    send("x")
if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
"""
    spool = tmp_path / "spool"
    done = run(body, moto_sqs.endpoint, f"spool:{spool}", script=tmp_path / "script.py")
    assert done.returncode == 0, done.stderr
    assert [event["type"] for event in spooled(spool)] == ["sent"]


def test_a_killed_process_loses_no_more_than_its_last_second(moto_sqs: Any, tmp_path: Path) -> None:
    """The next process publishes what was handed to the spool."""
    program = "send('x'); time.sleep(0.6); os.kill(os.getpid(), 9)"
    run(program, moto_sqs.endpoint, f"spool:{tmp_path}?max_age_s=60")
    [left] = tmp_path.glob(".*.open")
    os.utime(left, (time.time() - 60, time.time() - 60))
    run("send('y')", moto_sqs.endpoint, f"spool:{tmp_path}")
    assert [event["type"] for event in spooled(tmp_path)] == ["sent", "sent"]


def test_importing_the_library_imports_only_the_standard_library() -> None:
    """boto3 and kafka-python are imported only when they are used."""
    program = (
        "import sys, queuewatch;"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('boto3', 'botocore', 'kafka', 'numpy', 'pyarrow', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_broker_that_is_down_fails_no_call(elasticmq: Any) -> None:
    """What a call costs is measured by `make bench`, section client."""
    client = sqs.client(elasticmq.endpoint)
    url = client.create_queue(QueueName=f"down-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    watching = watch(client, f"kafka://127.0.0.1:{free_port()}/t")
    for _ in range(20):
        client.send_message(QueueUrl=url, MessageBody="x")
        [got] = client.receive_message(QueueUrl=url)["Messages"]
        client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert watching.stats()["hook_errors"] == 0
    watching.unwatch()
