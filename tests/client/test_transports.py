"""Each transport against the real destination, and what can go wrong there."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from queuewatch import SendError, open_transport
from queuewatch.aws_lambda.posting import HttpPoster
from queuewatch.transports.http import HttpTransport
from queuewatch.transports.spool import SpoolTransport
from queuewatch.transports.sqs import SqsTransport
from tests.services import sqs
from tests.services.process import free_port

# URLs


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("kafka://a:9092,b:9092/telemetry", "kafka://a:9092,b:9092/telemetry"),
        ("kafka://a:9093/t?security_protocol=SSL&ssl_cafile=ca.pem", "kafka://a:9093/t"),
        ("spool:/var/spool/queuewatch", "spool:/var/spool/queuewatch"),
        ("spool:///var/spool/queuewatch?max_age_s=5", "spool:/var/spool/queuewatch"),
        ("spool:relative/folder", "spool:relative/folder"),
        ("http://host:9400/api/v1/events", "http://host:9400/api/v1/events"),
        ("https://host", "https://host/api/v1/events"),
        ("sqs:telemetry?region=eu-west-1", "sqs:telemetry"),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/t", "sqs:https://sqs.eu-west-1.amazonaws.com/1/t"),
    ],
)
def test_a_url_names_its_transport(to: str, name: str) -> None:
    """Opening a transport does not connect."""
    assert open_transport(to).name == name


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("nowhere", "use kafka://"),
        ("ftp://host/x", "'ftp' is not a telemetry transport"),
        ("kafka://broker", "names no broker or no topic"),
        ("kafka://user:pw@broker/t", "QUEUEWATCH_KAFKA_PASSWORD"),
        ("kafka://broker/t?acks=1", "unknown option 'acks'"),
        ("spool:", "use kafka://"),
        ("spool:/x?max_age_s=soon", "max_age_s='soon' is not a number"),
        ("spool:/x?max_age_s=inf", "max_age_s='inf' must be finite and not negative"),
        ("spool:/x?max_age_s=nan", "max_age_s='nan' must be finite and not negative"),
        ("spool:/x?max_file_bytes=-1", "max_file_bytes='-1' must be finite and not negative"),
        ("http://u:p@host/", "QUEUEWATCH_TOKEN"),
        ("http:///path", "has no host"),
        ("http://host:99999/", "'http://host:99999/': the port must be a number up to 65535"),
        ("https://host:port/", "the port must be a number up to 65535"),
        ("http://[::1/", "'http://[::1/' is not a URL"),
        ("kafka://one:9092,two:99999/t", "'two:99999': the port must be a number up to 65535"),
        ("kafka://[::1/t", "'kafka://[::1/t' is not a URL"),
    ],
)
def test_a_wrong_url_is_named_with_the_fix(to: str, says: str) -> None:
    """`open_transport` raises at once."""
    with pytest.raises(ValueError, match=re.escape(says)):
        open_transport(to)


# Spool


def shown(folder: Path) -> list[bytes]:
    """Return the contents of the files that a reader sees, oldest first."""
    return [path.read_bytes() for path in sorted(folder.glob("*.ndjson"))]


def test_spool_files_appear_complete_by_size_and_by_age(tmp_path: Path) -> None:
    """A reader never sees a file that is still being written."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_file_bytes=10, max_age_s=0.1)
    assert spool.due_s() is None
    spool.send(b"1234\n")
    assert shown(folder) == []
    assert 0 <= (spool.due_s() or 0) <= 0.1
    spool.send(b"5678\n")
    assert shown(folder) == [b"1234\n5678\n"]
    spool.send(b"9\n")
    spool.flush()
    assert shown(folder) == [b"1234\n5678\n", b"9\n"]
    spool.close()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_full_spool_accepts_nothing_until_it_is_read(tmp_path: Path) -> None:
    """A spool without a reader must not fill the application's disk."""
    spool = SpoolTransport(str(tmp_path), max_file_bytes=10, max_folder_bytes=25)
    spool.send(b"x" * 9 + b"\n")
    spool.send(b"x" * 9 + b"\n")
    with pytest.raises(SendError, match="does anything read it") as caught:
        spool.send(b"x" * 9 + b"\n")
    assert caught.value.retry
    next(tmp_path.glob("*.ndjson")).unlink()
    spool.send(b"x" * 9 + b"\n")
    spool.close()


def test_files_of_a_dead_process_are_published(tmp_path: Path) -> None:
    """The next process publishes complete lines; files of a running process are left alone."""
    program = (
        "import os, sys; from queuewatch.transports.spool import SpoolTransport as S;"
        "s = S(sys.argv[1], max_age_s=1000); s.send(b'{1}\\n{2}\\n{3'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    living = SpoolTransport(str(tmp_path), max_age_s=1000)
    living.send(b"mine\n")
    for path in tmp_path.glob(".*"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    other = SpoolTransport(str(tmp_path), max_age_s=1000)
    other.send(b"x\n")
    assert shown(tmp_path) == [b"{1}\n{2}\n"]
    living.close()
    other.close()
    assert sorted(shown(tmp_path)) == [b"mine\n", b"x\n", b"{1}\n{2}\n"]


@pytest.mark.parametrize("act", ["send", "flush"])
@pytest.mark.parametrize("set_back_s", [0, 3600])
def test_files_of_a_process_that_was_restarted_at_once_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, set_back_s: int
) -> None:
    """They are too young when the next process begins. It looks again even with one file open, or when it has nothing to send."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(
        "queuewatch.transports.spool.time",
        SimpleNamespace(monotonic=lambda: clock.now_s, time=lambda: time.time() + clock.now_s - 1000, time_ns=time.time_ns),
    )
    program = (
        "import os, sys; from queuewatch.transports.spool import SpoolTransport as S;"
        "s = S(sys.argv[1], durable=True); s.send(b'{1}\\n'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    spool = SpoolTransport(str(tmp_path), max_age_s=1000 if act == "send" else 1)
    spool.send(b"{2}\n")
    assert b"{1}\n" not in shown(tmp_path)
    assert spool.due_s() == (10 if act == "send" else 1)
    clock.now_s += 5
    spool.flush() if act == "flush" else spool.send(b"{3}\n")
    assert b"{1}\n" not in shown(tmp_path)
    assert spool.due_s() == 5
    clock.now_s += 5 - set_back_s
    monkeypatch.setattr("queuewatch.transports.spool.time.monotonic", lambda: clock.now_s + set_back_s)
    assert spool.due_s() == 0
    spool.flush() if act == "flush" else spool.send(b"{4}\n")
    assert b"{1}\n" in shown(tmp_path)
    assert spool.due_s() == (None if act == "flush" else 990)
    spool.close()


def test_a_spool_keeps_its_own_times_beside_a_living_neighbour(tmp_path: Path) -> None:
    """The neighbour's file is young too, but it began later, or is locked: there is nothing to wait for."""
    spool, neighbour = (SpoolTransport(str(tmp_path), max_age_s=1000) for _ in range(2))
    spool.send(b"{1}\n")
    time.sleep(0.002)  # the names of files have milliseconds
    neighbour.send(b"{2}\n")
    spool._adopted_s -= 60
    spool.send(b"{3}\n")
    assert (spool.due_s() or 0) > 900
    spool.close()
    neighbour.close()


def test_two_transports_of_a_process_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files have different names even if both are opened in the same millisecond."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_518_460_148_000_000)
    transports = [SpoolTransport(str(tmp_path), max_age_s=1000) for _ in range(2)]
    for transport in transports:
        transport.send(b"x\n")
    for transport in transports:
        transport.close()
    assert shown(tmp_path) == [b"x\n", b"x\n"]


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize("remove", [_remove_folder, _empty_folder])
@pytest.mark.parametrize("max_age_s", [0.0, 1000.0], ids=["each payload in a file", "one file"])
def test_a_spool_whose_folder_or_open_file_is_removed_starts_again(
    tmp_path: Path, remove: Callable[[Path], None], max_age_s: float
) -> None:
    """What was in the open file is written again, once; what a reader could see is gone."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_age_s=max_age_s)
    spool.send(b"1\n")
    remove(folder)
    spool.send(b"2\n")
    remove(folder)
    spool.flush()
    assert shown(folder) == ([] if max_age_s == 0 else [b"1\n2\n"])
    spool.send(b"3\n")
    spool.close()
    assert shown(folder)[-1] == b"3\n"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_spool_folder_that_is_moved_is_not_written_twice(tmp_path: Path) -> None:
    """The open file still exists in the moved folder."""
    folder = tmp_path / "spool"
    spool = SpoolTransport(str(folder), max_age_s=1000)
    spool.send(b"1\n")
    folder.rename(tmp_path / "moved")
    spool.send(b"2\n")
    spool.close()
    assert shown(folder) == [b"2\n"]


def test_a_payload_is_written_once_even_if_its_file_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`send` succeeds, the next call fails without writing, and later both payloads appear once."""
    spool = SpoolTransport(str(tmp_path), max_file_bytes=1)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", refuse)
        spool.send(b"1\n")
        for call in (spool.flush, lambda: spool.send(b"2\n")):
            with pytest.raises(SendError, match="Permission denied"):
                call()
    spool.send(b"2\n")
    assert shown(tmp_path) == [b"1\n", b"2\n"]


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """The error names the path, here a file where the folder should be."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(SendError, match="taken") as caught:
        SpoolTransport(str(tmp_path / "taken")).send(b"x\n")
    assert caught.value.retry


# HTTP


class Ingest(ThreadingHTTPServer):
    """Answers with the given statuses, then with 202."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.explanation = b""
        self.got: list[tuple[str, dict[str, str], bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Ingest

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        status, headers = self.server.answers.pop(0) if self.server.answers else (202, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.explanation)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    """A server for telemetry."""
    with Ingest() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_http_posts_ndjson_with_the_current_token(ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated token file takes effect with the next request."""
    monkeypatch.delenv("QUEUEWATCH_TOKEN", raising=False)
    token = tmp_path / "token"
    transport = HttpTransport(f"http://127.0.0.1:{ingest.server_port}")
    for secret in ("one", "two\n"):
        token.write_text(secret)
        monkeypatch.setenv("QUEUEWATCH_TOKEN_FILE", str(token))
        transport.send(b"{}\n")
    path, headers, body = ingest.got[0]
    assert (path, body, headers["Content-Type"]) == ("/api/v1/events", b"{}\n", "application/x-ndjson")
    assert [headers["Authorization"] for _, headers, _ in ingest.got] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("status", "retry", "too_large"),
    [
        (500, True, False),
        (503, True, False),
        (429, True, False),
        (408, True, False),
        (400, False, False),
        (422, False, False),
        (413, False, True),
        (401, True, False),
        (403, True, False),
        (404, True, False),
        (302, True, False),
    ],
)
def test_http_statuses_mean_retry_split_or_drop(ingest: Ingest, status: int, retry: bool, too_large: bool) -> None:
    """A wrong token or address may be fixed, so events wait; redirects are not followed, since that would drop the body."""
    ingest.answers = [(status, {"Retry-After": "7", "Location": "/elsewhere"})]
    with pytest.raises(SendError) as caught:
        HttpTransport(f"http://127.0.0.1:{ingest.server_port}/x").send(b"{}\n")
    assert (caught.value.retry, caught.value.too_large, caught.value.retry_after_s) == (retry, too_large, 7.0)
    assert len(ingest.got) == 1


def test_a_refusal_says_what_the_service_said(ingest: Ingest) -> None:
    """421 Misdirected Request alone says nothing about the setting that is missing; a redirect says where to send instead."""
    url = f"http://127.0.0.1:{ingest.server_port}"
    ingest.explanation = b'{"error": {"message": "no\\nsuch name", "fix": "add the name to http.allowed_hosts"}}'
    ingest.answers = [(421, {})]
    with pytest.raises(SendError, match=r"answered 421 .*: no such name; add the name to http.allowed_hosts$"):
        HttpTransport(url).send(b"{}\n")
    ingest.answers = [(421, {})]
    with pytest.raises(SendError, match=r"answered 421: no such name; add the name to http.allowed_hosts$"):
        HttpPoster(f"{url}/api/v1/events", url).send(b"{}\n")
    for foreign in (b"<html>", b"[" * 4096, b"{}", b'{"error": "x"}', b"\xff", b'{"error": {"message": "' + b"x" * 9000):
        ingest.explanation, ingest.answers = foreign, [(401, {})]
        with pytest.raises(SendError, match=r"answered 401 Unauthorized; check QUEUEWATCH_TOKEN$"):
            HttpTransport(url).send(b"{}\n")
    ingest.answers = [(307, {"Location": "/api/v1/events"})]
    with pytest.raises(SendError, match=f"answered 307 .*; use {url}/api/v1/events$"):
        HttpTransport(f"{url}/api/v1/events/").send(b"{}\n")


def test_the_query_of_an_address_is_sent_and_not_shown(ingest: Ingest) -> None:
    """A gateway in front of the service may want a key there."""
    url = f"http://127.0.0.1:{ingest.server_port}"
    ingest.answers = [(403, {})]
    for to in (f"{url}?key=hush", f"{url}/x?key=hush"):
        transport = HttpTransport(to)
        with contextlib.suppress(SendError):
            transport.send(b"{}\n")
        assert "hush" not in transport.name
    assert [path for path, _, _ in ingest.got] == ["/api/v1/events?key=hush", "/x?key=hush"]


def test_a_refused_connection_is_retried() -> None:
    """The error says that the destination does not answer."""
    with pytest.raises(SendError, match="does not answer") as caught:
        HttpTransport(f"http://127.0.0.1:{free_port()}").send(b"{}\n")
    assert caught.value.retry


def test_a_missing_token_file_is_named(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport retries, because a mount may appear later."""
    monkeypatch.delenv("QUEUEWATCH_TOKEN", raising=False)
    monkeypatch.setenv("QUEUEWATCH_TOKEN_FILE", "/nonexistent/token")
    with pytest.raises(SendError, match="/nonexistent/token") as caught:
        HttpTransport(f"http://127.0.0.1:{ingest.server_port}").send(b"{}\n")
    assert caught.value.retry


# SQS


def test_sqs_carries_a_payload_as_one_message(moto_sqs: Any) -> None:
    """The queue is given by name or by URL; characters that SQS forbids are escaped."""
    client = sqs.client(moto_sqs.endpoint)
    name = f"telemetry-{uuid.uuid4().hex[:8]}"
    url = client.create_queue(QueueName=name)["QueueUrl"]
    for queue in (name, url):
        SqsTransport(queue, client=client).send('{"a":"é\uffff"}\n'.encode())
        [got] = client.receive_message(QueueUrl=url)["Messages"]
        assert got["Body"] == '{"a":"é\\uffff"}\n'
        client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])


@pytest.mark.parametrize(
    ("queue", "variables", "default"),
    [
        ("{name}?region=eu-west-1", {"AWS_DEFAULT_REGION": "us-east-1"}, None),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/{name}", {"AWS_DEFAULT_REGION": "us-east-1"}, None),
        ("{name}", {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "us-east-1"}, "us-east-1"),
        ("{name}", {"AWS_REGION": "eu-west-1"}, "us-east-1"),
        ("{name}", {}, "eu-west-1"),
    ],
    ids=["option", "URL", "boto3", "AWS_REGION", "default"],
)
def test_the_region_of_a_telemetry_queue(
    moto_sqs: Any, monkeypatch: pytest.MonkeyPatch, queue: str, variables: dict[str, str], default: str | None
) -> None:
    """boto3 ignores the region in a queue's URL and AWS_REGION, so it would call another region's endpoint, or none."""
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    given = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_ENDPOINT_URL_SQS": moto_sqs.endpoint}
    for variable, value in (given | variables).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    client = sqs.session().client("sqs", endpoint_url=moto_sqs.endpoint, region_name="eu-west-1")
    name = f"telemetry-{uuid.uuid4().hex[:8]}"
    url = client.create_queue(QueueName=name)["QueueUrl"]
    open_transport(f"sqs:{queue.format(name=name)}", default_region=default).send(b"{}\n")
    assert [got["Body"] for got in client.receive_message(QueueUrl=url)["Messages"]] == ["{}\n"]


def test_a_missing_telemetry_queue_is_named(moto_sqs: Any) -> None:
    """The transport retries, because the queue may still be created."""
    with pytest.raises(SendError, match="no such queue") as caught:
        SqsTransport("nowhere", client=sqs.client(moto_sqs.endpoint)).send(b"{}\n")
    assert caught.value.retry


# Kafka


def test_kafka_gets_one_record_per_payload(kafka: Any) -> None:
    """The records are read back with a consumer."""
    from kafka import KafkaConsumer, TopicPartition

    topic = kafka.create_topic()
    transport = open_transport(f"kafka://{kafka.bootstrap}/{topic}?compression_type=gzip")
    payload = b'{"n":1}\n' * 1000
    transport.send(payload)
    transport.send(b"{}\n")
    transport.close()
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, consumer_timeout_ms=5000)
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [next(consumer).value for _ in range(2)] == [payload, b"{}\n"]


def test_a_missing_topic_is_named_and_retried(kafka: Any) -> None:
    """Sending works once the topic has been created."""
    from queuewatch.transports.kafka import KafkaTransport

    topic = f"later-{uuid.uuid4().hex[:8]}"
    transport = KafkaTransport([kafka.bootstrap], topic, timeout_s=1.5)
    with pytest.raises(SendError, match=topic) as caught:
        transport.send(b"{}\n")
    assert caught.value.retry
    kafka.create_topic(topic)
    for _ in range(10):
        with contextlib.suppress(SendError):
            transport.send(b"{}\n")
            break
    else:
        pytest.fail("the topic is there and nothing arrives")
    transport.close()


def test_a_login_that_is_configured_comes_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector whose `source.kafka` has a login may have the variables too, for a `collect.to`."""
    from queuewatch.transports import kafka

    made: list[dict[str, Any]] = []

    class Producer:
        DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {}

        def __init__(self, **settings: Any) -> None:
            made.append(settings)

    monkeypatch.setattr(kafka, "_producer_class", lambda: Producer)
    monkeypatch.setattr(kafka.KafkaTransport, "_check_that_one_listens", lambda _self: None)
    monkeypatch.setenv("QUEUEWATCH_KAFKA_USERNAME", "environment")
    monkeypatch.setenv("QUEUEWATCH_KAFKA_PASSWORD", "environment")
    login: dict[str, Any] = {"sasl_plain_username": "configured", "sasl_plain_password": "configured"}
    for options, name in ((login, "configured"), ({}, "environment")):
        kafka.KafkaTransport(["broker:9092"], "telemetry", **options)._connected()
        assert made[-1]["sasl_plain_username"] == made[-1]["sasl_plain_password"] == name


def test_an_unreachable_broker_is_named() -> None:
    """A port where nothing listens is found before kafka-python tries it for a while."""
    from queuewatch.transports.kafka import KafkaTransport

    with pytest.raises(SendError, match=r"kafka://127\.0\.0\.1:\d+/t: no broker listens there") as caught:
        KafkaTransport([f"127.0.0.1:{free_port()}"], "t", timeout_s=1.0).send(b"{}\n")
    assert caught.value.retry


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_attempts_at_a_dead_broker_leave_no_open_files() -> None:
    """An application may run for weeks while its broker is down."""
    from queuewatch.transports.kafka import KafkaTransport

    transport = KafkaTransport([f"127.0.0.1:{free_port()}"], "t", timeout_s=0.2)
    gc.disable()
    try:
        counts = []
        for _ in range(4):
            with contextlib.suppress(SendError):
                transport.send(b"{}\n")
            counts.append(len(os.listdir("/proc/self/fd")))
    finally:
        gc.enable()
    assert counts[-1] <= counts[0]
