"""Each transport against the real destination, and what can go wrong there."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from queuewatch import SendError, open_transport
from queuewatch.aws_lambda.posting import HttpPoster
from queuewatch.transports.http import HttpTransport
from queuewatch.transports.sqs import SqsTransport
from tests.certificates import client_file
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


@pytest.mark.parametrize(
    ("explanation", "unreadable"),
    [
        (b'{"error": {"code": "invalid_events", "message": "none of 2 events can be read", "fix": "compare"}}', True),
        (b'{"error": {"code": "empty", "message": "the body is empty", "fix": "send one"}}', False),
        (b"<html>The plain HTTP request was sent to HTTPS port</html>", False),
    ],
    ids=["no event can be read", "another cause", "another server"],
)
def test_only_the_service_itself_says_that_events_are_unreadable(ingest: Ingest, explanation: bytes, unreadable: bool) -> None:
    """A 400 of anything in front of it is about the address, and collectors must not lose events to it."""
    ingest.explanation, ingest.answers = explanation, [(400, {})]
    with pytest.raises(SendError) as caught:
        HttpTransport(f"http://127.0.0.1:{ingest.server_port}").send(b"{}\n")
    assert caught.value.unreadable == unreadable


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


def test_a_redirect_to_no_address_is_retried(ingest: Ingest) -> None:
    """Its `Location` comes from whatever stands in front of the service: an error about it would cost the events."""
    ingest.answers = [(302, {"Location": "//[x"})]
    with pytest.raises(SendError, match=r"answered 302 .*; it redirects to an address that cannot be read$") as caught:
        HttpTransport(f"http://127.0.0.1:{ingest.server_port}").send(b"{}\n")
    assert caught.value.retry


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


def test_https_to_a_port_without_tls_says_what_to_change(ingest: Ingest) -> None:
    """OpenSSL says WRONG_VERSION_NUMBER, which names neither the cause nor the remedy."""
    with pytest.raises(SendError, match="does not speak TLS: use http:// instead of https://") as caught:
        HttpTransport(f"https://127.0.0.1:{ingest.server_port}").send(b"{}\n")
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


_SENDS = """
import sys
from queuewatch import SendError, open_transport
try:
    open_transport(sys.argv[1]).send(b"{}")
except SendError as error:
    print(error)
"""
_PRODUCES = """
import sys
from sinks.topic import durable_producer
from streaming.config.kafka import KafkaConnection
file = sys.argv[1].rpartition("=")[2]
broker = sys.argv[1].partition("//")[2].partition("/")[0]
try:
    durable_producer(KafkaConnection(
        bootstrap_servers=[broker], security_protocol="SSL", ssl_certificate_file=file
    ).python_options() | {"bootstrap_timeout_ms": 2_000})
except Exception as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [(_SENDS, "ssl_keyfile must be its private key, without a password"), (_PRODUCES, "Unable to bootstrap")],
    ids=["client", "service"],
)
def test_an_encrypted_key_for_kafka_is_an_error_and_no_question(tmp_path: Path, code: str, said: str) -> None:
    """OpenSSL asks for the password at the terminal, or on standard input, if it is given none at all, and waits for ever."""
    file = client_file(tmp_path, "the password")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"kafka://127.0.0.1:{server.getsockname()[1]}/t"
        url = f"{address}?security_protocol=SSL&ssl_certfile={file}&ssl_keyfile={file}"
        with subprocess.Popen(
            [sys.executable, "-c", code, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as child:
            assert child.stdout is not None
            try:
                child.wait(40)
                assert said in child.stdout.read()
            finally:
                child.kill()


@pytest.mark.parametrize(
    ("options", "login", "says"),
    [
        pytest.param(
            {"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"},
            {},
            r"/nowhere/ca\.pem cannot be used .*; ssl_cafile must be",
            id="a file of trusted certificates that is not there",
        ),
        pytest.param(
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            {"QUEUEWATCH_KAFKA_USERNAME": "shop"},
            "PLAIN needs QUEUEWATCH_KAFKA_USERNAME and QUEUEWATCH_KAFKA_PASSWORD; set both",
            id="a login without its password",
        ),
        pytest.param(
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            {"QUEUEWATCH_KAFKA_USERNAME": "shop", "QUEUEWATCH_KAFKA_PASSWORD": "of last month"},
            "no broker answers; check the address, security_protocol, user and password",
            id="a password that was rotated",
        ),
        pytest.param({}, {}, "no broker answers; check the address and security_protocol$", id="no login"),
    ],
)
def test_what_kafka_python_reports_as_a_broker_that_is_down_is_named(
    options: dict[str, str], login: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ended in "no broker answers; check the address and security_protocol"."""
    from queuewatch.transports.kafka import KafkaTransport

    for name, value in login.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as broker, pytest.raises(SendError, match=says) as caught:
        KafkaTransport([f"127.0.0.1:{broker.getsockname()[1]}"], "t", timeout_s=0.5, **options).send(b"{}\n")
    assert caught.value.retry


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
