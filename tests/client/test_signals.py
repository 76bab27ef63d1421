"""Signal handlers that call SQS never wait for the code that they interrupt, and SIGTERM does not lose the buffer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.services.process import free_port
from tests.spooled import spooled

_HANDLERS_THAT_CALL = """
import os, signal, sys, time
from queuewatch.handles import HandleMap
from queuewatch.lineage import Lineage
from queuewatch.places import Place
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]), max_buffered=1_000_000)
handles, lineage, place = HandleMap(100), Lineage("own", {}), Place("1/r", "q")
count = interrupted = 0
def work(kind):
    global count
    count += 1
    handles.remember(f"h{count % 500}", "m", None)
    handles.look_up("h1"); handles.forget(f"h{count % 7}")
    lineage.seen(f"k{count % 50}", place, f"m{count % 90}", 1, 1); lineage.deleted(f"m{count % 11}")
    sender.offer([{"type": kind}])
within = False
def handler(*_):
    global interrupted, within
    if within: return
    within = True
    interrupted += 1
    work("handler")
    if interrupted % 50 == 0: sender.flush(0.01)
    sender.stats()
    within = False
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
end = time.monotonic() + 3
while time.monotonic() < end: work("main"); sender.stats()
signal.setitimer(signal.ITIMER_REAL, 0, 0)
assert sender.flush(60)
stats = sender.stats()
assert (stats.dropped_overflow, stats.dropped_refused) == (0, 0), stats
print(count, stats.sent, interrupted)
"""


@pytest.mark.slow
def test_a_handler_that_calls_sqs_never_waits_for_what_it_interrupts(tmp_path: Path) -> None:
    """After many interruptions anywhere in our code, nothing hangs and nothing is lost."""
    command = [sys.executable, "-c", _HANDLERS_THAT_CALL, f"spool:{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    offered, sent, interrupted = map(int, done.stdout.split())
    assert offered == sent
    assert interrupted > 200


_DURING_THE_START = """
import signal, sys, threading
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport
sender = BackgroundSender(open_transport(sys.argv[1]))
when, flushed = sys.argv[2], []
def handler(*_):
    sender.offer([{"type": "handler"}])
    if len(sys.argv) > 3: exec(sys.argv[3])
    flushed.append(sender.flush(20))
signal.signal(signal.SIGTERM, handler)
class Interrupted(threading.Thread):
    first = True
    def start(self):
        first, Interrupted.first = Interrupted.first, False
        if first and when == "before": signal.raise_signal(signal.SIGTERM)
        super().start()
        if first and when == "after": signal.raise_signal(signal.SIGTERM)
threading.Thread = Interrupted
for n in range(3):
    try: sender.offer([{"type": "main"}])
    except TimeoutError: pass
assert sender.flush(20)
print(flushed, sender.stats().sent, sum(thread.name == "queuewatch-sender" for thread in threading.enumerate()))
sender.close()
for thread in threading.enumerate():
    if thread.name == "queuewatch-sender": thread.join(10)
print(sum(thread.name == "queuewatch-sender" for thread in threading.enumerate()))
"""


@pytest.mark.parametrize(("when", "threads"), [("before", 2), ("after", 1)])
def test_a_handler_that_flushes_while_the_sender_starts_does_not_hang(tmp_path: Path, when: str, threads: int) -> None:
    """The handler starts a thread itself, as the interrupted start continues only after it; the other thread has no work."""
    command = [sys.executable, "-c", _DURING_THE_START, f"spool:{tmp_path}", when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"[True] 4 {threads}", "0"]
    assert len(spooled(tmp_path)) == 4


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("leaves_by", "events"), [("sys.exit(0)", 2), ("raise TimeoutError", 4)])
def test_a_handler_that_raises_while_the_sender_starts_loses_nothing(
    tmp_path: Path, when: str, leaves_by: str, events: int
) -> None:
    """The buffered events are sent at exit or by the next call."""
    command = [sys.executable, "-c", _DURING_THE_START, f"spool:{tmp_path}", when, leaves_by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(spooled(tmp_path)) == events


_TERMINATED = """
import os, signal, sys, threading, time
import boto3
from queuewatch import watch
{before}
client = boto3.Session("testing", "testing", region_name="us-east-1").client("sqs", endpoint_url=sys.argv[1])
watching = watch(client, sys.argv[2], linger_s=30)
url = client.create_queue(QueueName=sys.argv[3])["QueueUrl"]
{after}
for n in range(10): client.send_message(QueueUrl=url, MessageBody="x")
print("sent", flush=True)
{wait}
"""


def _terminate(endpoint: str, to: str, *, before: str = "", after: str = "", wait: str = "") -> tuple[int, str]:
    """Return exit code and standard error. Fails if the process lives for longer than 20 s after SIGTERM."""
    program = _TERMINATED.format(before=before, after=after, wait=wait or "while True: time.sleep(1)")
    command = [sys.executable, "-c", program, endpoint, to, f"t{time.time_ns()}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "sent\n"
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    return process.returncode, errors


@pytest.mark.parametrize(
    "wait", ["while True: time.sleep(1)", "threading.Event().wait()", "client.receive_message(QueueUrl=url)\nwhile True: pass"]
)
def test_sigterm_without_a_handler_does_not_lose_the_buffer(moto_sqs: Any, tmp_path: Path, wait: str) -> None:
    """The process still ends by that signal, as its supervisor expects."""
    code, errors = _terminate(moto_sqs.endpoint, f"spool:{tmp_path}", wait=wait)
    assert (code, errors) == (-signal.SIGTERM, "")
    assert sum(event["type"] == "sent" for event in spooled(tmp_path)) == 10


def test_sigterm_with_a_dead_destination_takes_no_longer_than_the_deadline(moto_sqs: Any) -> None:
    """The default deadline is two seconds; a tenfold of it is waited for."""
    code, errors = _terminate(moto_sqs.endpoint, f"http://127.0.0.1:{free_port()}/")
    assert code == -signal.SIGTERM
    assert len(errors.splitlines()) <= 1, errors


_OWN = "def mine(*_): print('mine'); sys.exit(7)\nsignal.signal(signal.SIGTERM, mine)"
_CHAINED = """
former = signal.getsignal(signal.SIGTERM)
def mine(*_):
    if callable(former): former(*_)
    os._exit(7)
signal.signal(signal.SIGTERM, mine)
"""


@pytest.mark.parametrize(("before", "after"), [(_OWN, ""), ("", _OWN), ("", _CHAINED)], ids=["before", "after", "chained"])
def test_a_handler_of_the_application_is_left_alone(moto_sqs: Any, tmp_path: Path, before: str, after: str) -> None:
    """Even a handler that calls the previous one, which by default is none, stays in charge."""
    code, errors = _terminate(moto_sqs.endpoint, f"spool:{tmp_path}", before=before, after=after)
    assert (code, errors) == (7, "")


def test_the_last_unwatch_restores_the_signal_handler(moto_sqs: Any, tmp_path: Path) -> None:
    """`unwatch` restores SIGTERM's default action."""
    program = """
import signal, sys
import boto3
from queuewatch import watch
client = boto3.Session("testing", "testing", region_name="us-east-1").client("sqs", endpoint_url=sys.argv[1])
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
first = watch(client, sys.argv[2])
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
first.unwatch()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
watch(client, sys.argv[2], exit_deadline_s=0)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""
    command = [sys.executable, "-c", program, moto_sqs.endpoint, f"spool:{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
