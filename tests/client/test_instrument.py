"""`queuewatch-instrument` watches programs that do not import queuewatch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queuewatch.instrument.command import main
from tests.services.process import free_port
from tests.spooled import spooled

_COMMAND = str(Path(sys.executable).with_name("queuewatch-instrument"))

_LIFE = """
def life(client, url):
    client.send_message(QueueUrl=url, MessageBody="x")
    for message in client.receive_message(QueueUrl=url, WaitTimeSeconds=2)["Messages"]:
        assert "Attributes" not in message
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""


def run(
    program: str, environment: dict[str, str], *, before: tuple[str, ...] = (), arguments: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `queuewatch-instrument python -c PROGRAM`, with additional variables."""
    command = [_COMMAND, *before, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=environment | more)


def kinds(folder: Path) -> dict[str, int]:
    """Return how many events of each type arrived."""
    return dict(Counter(event["type"] for event in spooled(folder)))


def test_every_way_to_make_a_client_is_watched(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """Clients of the default session, sessions, resources, botocore, and one made in a thread are watched.

    Messages are received with one client and deleted with another.
    """
    program = f"""{_LIFE}
import threading, uuid
import boto3, botocore.session
client = boto3.client("sqs")
url = client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
life(client, url)
life(boto3.Session().client("sqs"), url)
life(boto3.resource("sqs").meta.client, url)
life(botocore.session.get_session().create_client("sqs"), url)
thread = threading.Thread(target=lambda: life(boto3.Session().client("sqs"), url))
thread.start(); thread.join()
queue = boto3.Session().resource("sqs").Queue(url)
queue.send_message(MessageBody="x")
[message] = queue.receive_messages(WaitTimeSeconds=2)
boto3.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message.receipt_handle)
"""
    done = run(program, sqs_environment, QUEUEWATCH_TO=f"spool:{tmp_path}", QUEUEWATCH_CONSUMER="shop")
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(tmp_path) == {"sent": 6, "received": 6, "deleted": 6}
    assert {event["consumer"] for event in spooled(tmp_path) if event["type"] == "deleted"} == {"shop"}


def test_child_processes_are_watched_too(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """Another interpreter, a spawned process, and forks before and after the first call are watched."""
    script = tmp_path / "shop.py"
    script.write_text(f"""{_LIFE}
import multiprocessing, os, subprocess, sys, uuid
def work():
    import boto3
    client = boto3.client("sqs")
    life(client, client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"])
if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        work()
        sys.exit()
    def forked():
        child = os.fork()
        if not child:
            work()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    forked()
    subprocess.run([sys.executable, __file__, "child"], check=True)
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=work)
        process.start(); process.join()
        assert process.exitcode == 0
    work()
    forked()
""")
    spool = tmp_path / "spool"
    environment = sqs_environment | {"QUEUEWATCH_TO": f"spool:{spool}"}
    done = subprocess.run(
        [_COMMAND, sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(spool) == {"sent": 6, "received": 6, "deleted": 6}
    assert len({event["consumer"] for event in spooled(spool) if event["type"] == "received"}) == 6


def test_an_existing_sitecustomize_runs_as_before(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """A sitecustomize may load another agent: Python still reports its errors, and `sys.path` is unchanged."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = __file__\nimport botocore\n")
    program = "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__, [p for p in sys.path if 'queuewatch' in p])"
    plain = [sys.executable, "-c", "import sys; print(sys.path)"]
    mine = str(tmp_path / "sitecustomize.py")
    done = run(program, sqs_environment, QUEUEWATCH_TO="spool:/nowhere", PYTHONPATH=str(tmp_path))
    assert (done.stdout.split()[:2], done.stderr) == ([mine, mine], "")
    environment = sqs_environment | {"QUEUEWATCH_TO": "spool:/nowhere"}
    paths = [
        subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
        for command in (plain, [_COMMAND, *plain])
    ]
    assert paths[0] == paths[1]
    (tmp_path / "sitecustomize.py").write_text("1 / 0")
    done = run("print('runs')", sqs_environment, QUEUEWATCH_TO="spool:/nowhere", PYTHONPATH=str(tmp_path))
    assert done.stdout == "runs\n"
    assert "ZeroDivisionError" in done.stderr


def test_a_session_imported_by_a_hidden_sitecustomize_is_watched(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """botocore may already be imported before the program begins."""
    (tmp_path / "sitecustomize.py").write_text("import boto3\n")
    program = f"""{_LIFE}
import boto3, uuid
client = boto3.client("sqs")
life(client, client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"])
"""
    spool = tmp_path / "spool"
    done = run(program, sqs_environment, QUEUEWATCH_TO=f"spool:{spool}", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(spool) == {"sent": 1, "received": 1, "deleted": 1}


_SEND = """
import boto3, uuid
client = boto3.client("sqs")
client.send_message(QueueUrl=client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"], MessageBody="x")
"""


_ASKS = """
import importlib.util
for _ in range(2):
    assert importlib.util.find_spec("botocore") is not None
"""
_FAILS = """
import os, sys
sys.path.insert(0, os.environ["BROKEN"])
try:
    import botocore
except ZeroDivisionError:
    del sys.path[0]
else:
    sys.exit("no error")
"""
_AGENT = """
import importlib.util, sys
class Agent:
    asking = False
    def find_spec(self, name, path=None, target=None):
        if self.asking or name != "botocore":
            return None
        self.asking = True
        spec = importlib.util.find_spec(name)
        self.asking = False
        spec.loader = Loader(spec.loader)
        return spec
class Loader:
    def __init__(self, loader):
        self.create_module = loader.create_module
        self.exec_module = lambda module: loader.exec_module(module)
sys.meta_path.insert(1, Agent())
"""


@pytest.mark.parametrize(
    "first",
    [_ASKS, _FAILS, _AGENT],
    ids=["a program that asks whether it is installed", "an import that fails", "an agent that asks all finders"],
)
def test_the_import_of_botocore_is_noticed_even_after_other_look_ups(
    sqs_environment: dict[str, str], tmp_path: Path, first: str
) -> None:
    """Afterwards, imports work as without the command."""
    broken = tmp_path / "broken"
    (broken / "botocore").mkdir(parents=True)
    (broken / "botocore" / "__init__.py").write_text("1 / 0")
    last = "import sys; assert not any('queuewatch' in type(f).__module__ for f in sys.meta_path)"
    spool = tmp_path / "spool"
    done = run(f"{first}\n{_SEND}\n{last}", sqs_environment, QUEUEWATCH_TO=f"spool:{spool}", BROKEN=str(broken))
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(spool) == {"sent": 1}


@pytest.mark.parametrize("value", ["abc", "nan", "inf", "-1"])
def test_an_exit_deadline_that_is_no_number_is_named(sqs_environment: dict[str, str], tmp_path: Path, value: str) -> None:
    """The process is watched with the default."""
    done = run(_SEND * 2, sqs_environment, QUEUEWATCH_TO=f"spool:{tmp_path}", QUEUEWATCH_EXIT_DEADLINE_S=value)
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert f"QUEUEWATCH_EXIT_DEADLINE_S='{value}'" in line
    assert kinds(tmp_path) == {"sent": 2}


def test_telemetry_sent_by_sqs_is_not_watched(sqs_environment: dict[str, str], moto_sqs: Any) -> None:
    """Otherwise each telemetry message would cause another."""
    from tests.services import sqs

    client = sqs.client(moto_sqs.endpoint)
    telemetry = client.create_queue(QueueName=f"telemetry-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    program = f"""{_LIFE}
import boto3, time, uuid
client = boto3.client("sqs")
life(client, client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"])
time.sleep(2)
"""
    done = run(program, sqs_environment, QUEUEWATCH_TO=f"sqs:{telemetry}")
    assert (done.returncode, done.stderr) == (0, "")
    bodies: list[str] = []
    while got := client.receive_message(QueueUrl=telemetry, MaxNumberOfMessages=10).get("Messages"):
        bodies += [message["Body"] for message in got]
    events = [json.loads(line) for body in bodies for line in body.splitlines()]
    assert sorted(event["type"] for event in events) == ["deleted", "received", "sent"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "QUEUEWATCH_TO is not set"),
        ({"QUEUEWATCH_TO": "kafka://broker:9092"}, "names no broker or no topic"),
        ({"QUEUEWATCH_DISABLED": "1"}, ""),
        ({"QUEUEWATCH_DISABLED": "1", "QUEUEWATCH_TO": "spool:/nowhere"}, ""),
    ],
    ids=["not set", "wrong", "off", "off though set"],
)
def test_without_telemetry_the_program_still_runs(sqs_environment: dict[str, str], more: dict[str, str], says: str) -> None:
    """A typo in a deployment must not keep an application from starting; switched off, nothing is printed."""
    program = "import boto3, sys; boto3.client('sqs'); print('queuewatch' in sys.modules); sys.exit(5)"
    done = run(program, sqs_environment | more)
    assert (done.returncode, done.stdout) == (5, "False\n")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == bool(says)


def test_a_program_without_logging_shows_why_nothing_arrives(sqs_environment: dict[str, str]) -> None:
    """Otherwise a wrong address, or a missing package, would look like success. The program itself is not affected."""
    to = f"http://127.0.0.1:{free_port()}/api/v1/events"
    done = run(f"{_SEND}\nimport time; time.sleep(1)\nprint('done')", sqs_environment, QUEUEWATCH_TO=to)
    assert (done.returncode, done.stdout) == (0, "done\n")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"queuewatch: telemetry is not sent: {to} does not answer")


def test_a_destination_may_be_given_as_an_option(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """Options after the command belong to the command."""
    program = "import os, sys; print(os.environ['QUEUEWATCH_TO'], os.environ['QUEUEWATCH_CONSUMER'], sys.argv[1:])"
    options = ("--to", f"spool:{tmp_path}", "--consumer", "me")
    done = run(program, sqs_environment, before=options, arguments=("--to", "x"))
    assert done.stdout == f"spool:{tmp_path} me ['--to', 'x']\n"


@pytest.mark.parametrize(
    ("to", "says"), [("foo://x", "--to: 'foo://x': 'foo' is not a telemetry transport;"), ("", "--to is empty;")]
)
def test_a_wrong_option_is_named_not_the_variable(sqs_environment: dict[str, str], to: str, says: str) -> None:
    """The user wrote the option; the variable has another value, or none."""
    done = run("print('ran')", sqs_environment, before=("--to", to), QUEUEWATCH_TO="spool:/nowhere")
    assert done.stdout == "ran\n"
    assert done.stderr.startswith(f"queuewatch-instrument: {says}")


@pytest.mark.parametrize(("command", "code"), [(["no-such-command"], 127), (["/etc/passwd"], 126), ([], 2)])
def test_a_command_that_cannot_run_is_named(sqs_environment: dict[str, str], command: list[str], code: int) -> None:
    """The exit codes are those of a shell."""
    environment = sqs_environment | {"QUEUEWATCH_TO": "spool:/nowhere"}
    done = subprocess.run([_COMMAND, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in command)


def test_only_the_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """Its arguments are optional."""
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().err.endswith("the following arguments are required: COMMAND\n")


def test_a_command_that_hides_this_one_is_named(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """OpenTelemetry's `sitecustomize` comes first and runs no other; the other way round, ours runs it."""
    agent = tmp_path / "opentelemetry-instrument"
    agent.write_text('#!/bin/sh\nexec "$@"\n')
    agent.chmod(0o755)
    command = [_COMMAND, "--to", f"spool:{tmp_path}", str(agent), "true"]
    done = subprocess.run(command, env=sqs_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert f"{agent} queuewatch-instrument" in line


def test_the_command_becomes_the_program(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """The process stays the same, so signals reach the application, and the supervisor gets its exit code."""
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = [_COMMAND, "--to", f"spool:{tmp_path}", sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=sqs_environment) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_program_without_sqs_has_almost_no_overhead(sqs_environment: dict[str, str], tmp_path: Path) -> None:
    """Every Python process below the command runs the hook, which loads at most 12 modules and not the library."""
    program = "import sys; print(len(sys.modules), 'queuewatch' in sys.modules)"
    environment = sqs_environment | {"QUEUEWATCH_TO": f"spool:{tmp_path}"}
    plain = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    watched = run(program, environment)
    modules, loaded = watched.stdout.split()
    assert loaded == "False"
    assert int(modules) - int(plain.stdout.split()[0]) <= 12
    assert watched.stderr == ""


@pytest.mark.parametrize("where", ["work()", "threading.Thread(target=work, daemon=True).start()"], ids=["main", "thread"])
def test_a_process_that_is_terminated_sends_what_it_saw(sqs_environment: dict[str, str], tmp_path: Path, where: str) -> None:
    """Example: `docker stop` ends a loop that handles no signals, or a program whose threads have a session each."""
    program = f"""
import boto3, threading, time, uuid
def work():
    client = boto3.Session().client("sqs")
    url = client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"]
    for n in range(10): client.send_message(QueueUrl=url, MessageBody="x")
    print("sent", flush=True)
{where}
while True: time.sleep(1)
"""
    command = [_COMMAND, "--to", f"spool:{tmp_path}?max_age_s=60", sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=sqs_environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "sent\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == -signal.SIGTERM
        finally:
            process.kill()
    assert kinds(tmp_path) == {"sent": 10}


_LIMITED = f"""{_LIFE}
import signal, sys, uuid
class TimeLimit(Exception): pass
def over(*_): raise TimeLimit
signal.signal(signal.SIGUSR1, over)
def trace(frame, *_):
    if frame.f_code.co_name == sys.argv[1] and "queuewatch" in frame.f_code.co_filename:
        sys.settrace(None)
        signal.raise_signal(signal.SIGUSR1)
sys.settrace(trace)
try:
    import boto3
    boto3.Session()
    print("not limited")
except TimeLimit:
    print("limited")
sys.settrace(None)
import boto3
client = boto3.client("sqs")
life(client, client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"])
"""


@pytest.mark.parametrize("function", ["watch_every_session", "_deadline", "watch", "acquire"])
def test_a_time_limit_that_ends_during_the_set_up_reaches_the_program(
    sqs_environment: dict[str, str], tmp_path: Path, function: str
) -> None:
    """A task that is the first to import boto3 has a limit as well; the next import and session are watched."""
    done = run(_LIMITED, sqs_environment, arguments=(function,), QUEUEWATCH_TO=f"spool:{tmp_path}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "limited\n", "")
    assert kinds(tmp_path) == {"sent": 1, "received": 1, "deleted": 1}


_OWN_USE = {
    "nothing": "import boto3",
    "a pull consumer": "import boto3\nwith PullConsumer('a', 'q', queue='orders', token='t'): pass",
    "a pull consumer that is older": "with PullConsumer('a', 'q', queue='orders', token='t'): import boto3",
    "a watched session": "import boto3, queuewatch\nqueuewatch.watch(session := boto3.Session()).unwatch()\ndel session",
}


@pytest.mark.parametrize("own_use", _OWN_USE)
def test_sigterm_is_handled_as_long_as_the_process_runs(sqs_environment: dict[str, str], tmp_path: Path, own_use: str) -> None:
    """Also if the application's own use of the library ends before the first session is made, in a thread."""
    program = f"""
import os, signal, threading, time, uuid
from queuewatch.cloudflare import PullConsumer
{_OWN_USE[own_use]}
def work():
    client = boto3.Session().client("sqs")
    client.send_message(QueueUrl=client.create_queue(QueueName=uuid.uuid4().hex)["QueueUrl"], MessageBody="x")
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=work).start()
time.sleep(60)
"""
    done = run(program, sqs_environment, QUEUEWATCH_TO=f"spool:{tmp_path}?max_age_s=60")
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert kinds(tmp_path) == {"sent": 1}
