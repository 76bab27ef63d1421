"""Forks at the worst moments: while the first event is being sent, and under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spooled import spooled

_IMPORTS = """
import sys, threading
class Recorder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread(): print(name)
sys.meta_path.insert(0, Recorder())
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]))
sender.offer([{"type": "x"}])
sender.flush(float(sys.argv[2]))
print("sent", sender.stats().sent)
"""


def _imported_in_the_thread(to: str, environment: dict[str, str], timeout_s: float = 20) -> list[str]:
    command = [sys.executable, "-c", _IMPORTS, to, str(timeout_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_sender_thread_imports_nothing(kafka: Any, moto_sqs: Any, tmp_path: Path, sqs_environment: dict[str, str]) -> None:
    """A child forked during an import would wait for that import forever, so no transport may import in the thread."""
    queue = f"imports-{threading.get_ident()}"
    from tests.services import sqs

    sqs.client(moto_sqs.endpoint).create_queue(QueueName=queue)
    for to in (
        f"spool:{tmp_path}",
        f"sqs:{queue}?region=us-east-1",
        f"kafka://{kafka.bootstrap.replace('127.0.0.1', 'localhost')}/{kafka.create_topic()}",
    ):
        assert _imported_in_the_thread(to, sqs_environment) == ["sent 1"], to
    assert _imported_in_the_thread("https://localhost:1/", sqs_environment, 0.5) == ["sent 0"]


_FORK_IN_C = """
import ctypes, os, pathlib, sys, time
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]), linger_s=0.01, exit_deadline_s=30)
sender.offer([{"type": "parent"}])
assert sender.flush(30)
folder = pathlib.Path(sys.argv[1].removeprefix("spool:"))
def is_shown(word):
    return any(word in path.read_text() for path in folder.glob("*.ndjson"))
for how in ("flushes", "waits", "only exits"):
    time.sleep(0.5)  # the sender's thread is idle: Python's own lock is not prepared for this fork
    child = ctypes.PyDLL(None).fork()
    if not child:
        began_s = time.monotonic()
        if how != "only exits":
            sender.offer([{"type": how}])
        if how == "flushes" and not sender.flush(30):
            os._exit(1)
        if how == "waits":
            while not is_shown(how) and time.monotonic() - began_s < 30: time.sleep(0.05)
            os._exit(0)
        sender.close()
        os._exit(0 if time.monotonic() - began_s < 30 else 2)  # it would wait for the parent's thread until the deadline
    print(how, os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
def test_a_child_that_python_did_not_fork_sends_its_own(tmp_path: Path) -> None:
    """uWSGI forks its workers in C without calling Python's hooks, after the application may have sent events."""
    command = [sys.executable, "-c", _FORK_IN_C, f"spool:{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("flushes 0\nwaits 0\nonly exits 0\n", "")
    assert sorted(event["type"] for event in spooled(tmp_path)) == ["flushes", "parent", "waits"]


_FORK_IN_C_THAT_EXITS = """
import atexit, ctypes, os, sys, time
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]), linger_s=5, exit_deadline_s=30)
sender.offer([{"type": "parent"}])
time.sleep(0.3)  # the sender's thread waits for more events
child = ctypes.PyDLL(None).fork()
if not child:
    began_s = time.monotonic()
    atexit._run_exitfuncs()
    os._exit(0 if time.monotonic() - began_s < 30 else 2)  # it would wait for the parent's sender until the deadline
print(os.waitpid(child, 0)[1])
"""


def test_a_child_that_python_did_not_fork_exits_at_once(tmp_path: Path) -> None:
    """A uWSGI worker that made no call neither waits for the parent's sender nor reports the parent's events as lost."""
    command = [sys.executable, "-c", _FORK_IN_C_THAT_EXITS, f"spool:{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert [event["type"] for event in spooled(tmp_path)] == ["parent"]


_FORK_OF_A_TRANSPORT_THAT_RAISES = """
import os
from queuewatch import Transport
from queuewatch.sender import BackgroundSender
class Own(Transport):
    name, max_bytes = "own", 1000
    def send(self, payload): print(payload.decode(), end="", flush=True)
    def after_fork(self): raise RuntimeError("no connection yet")
sender = BackgroundSender(Own(), linger_s=0.01)
sender.offer([{"type": "parent"}])
assert sender.flush(10)
child = os.fork()
sender.offer([{"type": "child"}] if not child else [])
if not child:
    os._exit(0 if sender.flush(10) else 3)
print(os.waitpid(child, 0)[1])
"""


def test_a_child_sends_its_own_through_a_transport_that_raises_after_the_fork() -> None:
    """The transport may be the application's own; its error must not leave the child with the parent's dead thread."""
    command = [sys.executable, "-c", _FORK_OF_A_TRANSPORT_THAT_RAISES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ('{"type":"parent"}\n{"type":"child"}\n0\n', "")


_FORK_AFTER_THE_FIRST_SEND = """
import os, sys, time
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
bad = 0
sender = BackgroundSender(open_transport(sys.argv[1]), linger_s=0.01)
sender.offer([{"type": "parent"}])
for n in range(int(sys.argv[2])):
    time.sleep(0.03)
    child = os.fork()
    if not child:
        sender.offer([{"type": "child", "n": n}])
        sys.exit(0 if sender.flush(30) else 3)
    bad += os.waitpid(child, 0)[1] != 0
assert sender.flush(30)
print("bad", bad)
"""


@pytest.mark.slow
def test_a_child_forked_right_after_the_first_send_sends_its_own(kafka: Any) -> None:
    """The parent forks 15 times, every 30 ms, while the sender connects to Kafka; children exit without log or wait."""
    topic = kafka.create_topic()
    command = [sys.executable, "-c", _FORK_AFTER_THE_FIRST_SEND, f"kafka://{kafka.bootstrap}/{topic}", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("bad 0\n", "")
    kinds = [event["type"] for event in _read(kafka, topic, 16)]
    assert sorted(kinds) == ["child"] * 15 + ["parent"]


_FORKS_UNDER_LOAD = """
import os, sys, threading
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]), linger_s=0.01, max_buffered=1_000_000)
forks, stop, numbers = int(sys.argv[2]), threading.Event(), [0] * 2
def load(me):
    while not stop.wait(0.001):
        sender.offer([{"type": "parent", "id": f"{me}-{numbers[me]}"}])
        numbers[me] += 1
threads = [threading.Thread(target=load, args=(n,)) for n in range(2)]
for thread in threads: thread.start()
bad = 0
for n in range(forks):
    child = os.fork()
    if not child:
        sender.offer([{"type": "child", "id": str(n)}])
        # Most children leave as a pre-forking server's do, a few through the interpreter's own end.
        os._exit(0 if sender.flush(30) else 3) if n % 10 else sys.exit(0)
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads: thread.join()
assert sender.flush(30)
print(bad, sum(numbers))
"""


@pytest.mark.slow
def test_forks_under_load_neither_hang_nor_duplicate_events(tmp_path: Path) -> None:
    """There are five hundred forks; every tenth child leaves through the interpreter's shutdown."""
    forks = 500
    to = f"spool:{tmp_path}?max_folder_bytes=4000000000"
    done = subprocess.run(
        [sys.executable, "-c", _FORKS_UNDER_LOAD, to, str(forks)], capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    bad, offered = map(int, done.stdout.split())
    events = spooled(tmp_path)
    assert bad == 0
    assert len({(event["type"], event["id"]) for event in events}) == len(events) == forks + offered


@pytest.mark.slow
def test_children_stopped_by_sigterm_under_load_neither_hang_nor_duplicate_events(tmp_path: Path) -> None:
    """The children's handlers call SQS wherever the signal interrupts. The variable FORKS sets another number of forks."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.client.forking"]
    to, forks = f"spool:{tmp_path}?max_folder_bytes=4000000000", int(os.environ.get("FORKS", "150"))
    done = subprocess.run([*command, to, str(forks)], capture_output=True, text=True, timeout=forks + 100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["codes"], found["flushed"]) == ({"0": forks}, True)
    ids = [event["message_id"] for event in spooled(tmp_path)]
    assert len(set(ids)) == len(ids)
    reported = Counter(message_id.partition("-")[0] for message_id in ids)
    assert reported["parent"] == found["parent"]
    # One more event than calls that returned: the signal may come after a call is reported and before it returns.
    lost = {n: (reported[str(n)], calls) for n, calls in enumerate(found["children"]) if not 0 <= reported[str(n)] - calls <= 1}
    assert lost == {}


def _read(kafka: Any, topic: str, at_least: int) -> list[dict[str, Any]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, consumer_timeout_ms=3000)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = [json.loads(line) for record in consumer for line in record.value.splitlines()]
    finally:
        consumer.close()
    assert len(found) >= at_least
    return found
