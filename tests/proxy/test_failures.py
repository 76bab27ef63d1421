"""Telemetry never costs a call; and how calls end when SQS, the application or the proxy itself goes away."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from botocore.exceptions import ClientError

from queuewatch.proxy import running
from queuewatch.proxy.server import Handler
from tests.coroutines import finished
from tests.proxy.clients import client
from tests.proxy.fake_sqs import JSON, SENT, Asked, FakeSqs, fake_sqs
from tests.services import proxy as proxy_service
from tests.services.elasticmq import ElasticMQ
from tests.services.process import free_port, listens
from tests.services.proxy import Proxy
from tests.spooled import spooled
from tests.waiting import until

_MESSAGE = b'{"Messages":[{"MessageId":"m-1","ReceiptHandle":"h-1","MD5OfBody":"0cc175b9c0f1b6a831c399e269772661","Body":"a"}]}'

_JSON_SEND = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}


def new_queue(made: Any) -> str:
    """Create a queue with a name that no other test uses, and return its URL."""
    return str(made.create_queue(QueueName=f"q-{uuid.uuid4().hex[:10]}")["QueueUrl"])


def sends(made: Any, url: str, count: int) -> list[float]:
    """Make `count` sends, which all must succeed, and return the sorted seconds that each took."""
    took = []
    for n in range(count):
        began_s = time.perf_counter()
        made.send_message(QueueUrl=url, MessageBody=str(n))
        took.append(time.perf_counter() - began_s)
    return sorted(took)


@pytest.mark.slow
def test_memory_is_limited_to_calls_in_flight() -> None:
    """Calls that are too large are refused, and nothing is left of the 16 MiB that were read of each; nor of calls of 1 MiB."""
    with fake_sqs(lambda _: (200, JSON, SENT)) as fake, proxy_service.start(fake.endpoint) as proxy:
        made = client(proxy.endpoint)
        url = f"{proxy.endpoint}/123456789012/orders"
        large = json.dumps({"QueueUrl": url, "MessageBody": "x" * (1 << 20)}).encode()
        proxy.stats()
        before_kib = _resident_kib(proxy.pid)
        for _ in range(12):
            refused = httpx.post(proxy.endpoint, content=b"x" * (64 << 20), headers=_JSON_SEND, timeout=60)
            assert refused.status_code == 413
        with httpx.Client(headers={**_JSON_SEND, "Connection": "close"}, timeout=60) as http:
            for _ in range(30):
                assert http.post(proxy.endpoint, content=large).status_code == 200
        assert _resident_kib(proxy.pid) - before_kib < 100 << 10
        sends(made, url, 1)


_NAMES = ["SentTimestamp"]
_ASKS: list[dict[str, list[str]]] = [
    {},
    {"AttributeNames": _NAMES},
    {"MessageSystemAttributeNames": _NAMES},
    {"MessageSystemAttributeNames": ["All"]},
    {"MessageAttributeNames": ["order"]},
]


@pytest.mark.parametrize("asked", _ASKS, ids=str)
@pytest.mark.parametrize("protocol", ["json", "query"])
def test_a_receive_reaches_sqs_with_its_own_queue_url(
    behind: tuple[FakeSqs, Proxy], asked: dict[str, list[str]], protocol: str
) -> None:
    """Whichever attributes the application lists; SQS refuses the proxy's address."""
    fake, proxy = behind
    fake.asked.clear()
    url = f"{proxy.endpoint}/123456789012/orders"
    if protocol == "json":
        headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": JSON}
        answer = httpx.post(proxy.endpoint, headers=headers, content=json.dumps({"QueueUrl": url, **asked}))
        found = json.loads(fake.asked[0].body)["QueueUrl"]
    else:
        form = {"Action": "ReceiveMessage", "QueueUrl": url}
        form |= {f"{name.removesuffix('s')}.{n}": value for name in asked for n, value in enumerate(asked[name], 1)}
        answer = httpx.post(proxy.endpoint, data=form)
        found = parse_qs(fake.asked[0].body.decode())["QueueUrl"][0]
    assert (answer.status_code, found) == (200, f"{fake.endpoint}/123456789012/orders")


@pytest.fixture(scope="module", params=[(), ("--lineage-attribute", "order-id")], ids=["", "lineage"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[FakeSqs, Proxy]]:
    """An endpoint that answers each receive with a message, and a proxy in front of it."""
    with fake_sqs(lambda _: (200, JSON, _MESSAGE)) as fake, proxy_service.start(fake.endpoint, *request.param) as made:
        yield fake, made


def test_a_compressed_call_is_forwarded_as_what_it_was_decompressed_to(behind: tuple[FakeSqs, Proxy]) -> None:
    """SQS would try to decompress it again."""
    fake, proxy = behind
    fake.asked.clear()
    call = json.dumps({"QueueUrl": f"{proxy.endpoint}/123456789012/orders", "MessageBody": "a"}).encode()
    headers = {**_JSON_SEND, "Content-Encoding": "gzip"}
    assert httpx.post(proxy.endpoint, headers=headers, content=gzip.compress(call)).status_code == 200
    assert json.loads(fake.asked[0].body)["MessageBody"] == "a"
    assert "Content-Encoding" not in fake.asked[0].headers


@pytest.mark.parametrize("length", [8_191, 60_000])
@pytest.mark.parametrize("where", ["header", "line"])
def test_a_long_header_or_request_line_is_forwarded(behind: tuple[FakeSqs, Proxy], where: str, length: int) -> None:
    """A session token or trace baggage may be long, and so may a call of the Query protocol in its URL."""
    fake, proxy = behind
    fake.asked.clear()
    long = "x" * length
    if where == "header":
        call = json.dumps({"QueueUrl": f"{proxy.endpoint}/123456789012/orders", "MessageBody": "a"}).encode()
        answer = httpx.post(proxy.endpoint, headers={**_JSON_SEND, "baggage": long}, content=call)
        assert fake.asked[0].headers["baggage"] == long
    else:
        form = {"Action": "SendMessage", "MessageBody": long}
        answer = httpx.post(f"{proxy.endpoint}/123456789012/orders", params=form)
        assert parse_qs(fake.asked[0].body.decode())["MessageBody"] == [long]
    assert answer.status_code == 200


def _resident_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


@contextmanager
def silent_server() -> Iterator[str]:
    """Run a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/events"


@pytest.mark.parametrize("trouble", ["away", "silent", "full", "refusing", "unusable"])
def test_no_call_waits_for_telemetry_or_fails_with_it(elasticmq: ElasticMQ, proxy_of_elasticmq: Proxy, trouble: str) -> None:
    """The destination is down, accepts and never answers, is full, refuses, or is invalid."""
    with silent_server() as silent, fake_sqs(lambda _: (403, "text/plain", b"no")) as refusing:
        to = {
            "away": "http://127.0.0.1:1/api/v1/events",
            "silent": silent,
            "full": "spool:/dev/full/no",
            "refusing": f"{refusing.endpoint}/api/v1/events",
            "unusable": "carrier-pigeon:home",
        }[trouble]
        with proxy_service.start(elasticmq.endpoint, "--max-buffered", "50", to=to) as troubled:
            url = new_queue(client(elasticmq.endpoint))
            both = client(proxy_of_elasticmq.endpoint), client(troubled.endpoint)
            for made in both:
                sends(made, url, 20)
            usual, found = (sends(made, url, 200) for made in both)
            stats = troubled.stats()
    # A promise about the time of real calls. They take some milliseconds; those that waited for telemetry would take seconds.
    assert found[100] < 10 * usual[100] + 0.05
    if trouble == "unusable":
        assert stats["telemetry"] == "off"
    else:
        assert stats["sent"] == 0
        assert stats["dropped_overflow"] + stats["dropped_refused"] + stats["buffered"] == 220
        assert stats["buffered"] <= 50


def test_telemetry_to_a_queue_is_not_sent_through_the_proxy_itself(elasticmq: ElasticMQ) -> None:
    """The application's variable may be set for the proxy too; each call with telemetry would then be reported by another one."""
    telemetry, port = f"telemetry-{uuid.uuid4().hex[:10]}", free_port()
    at_sqs = client(elasticmq.endpoint)
    telemetry_url = at_sqs.create_queue(QueueName=telemetry)["QueueUrl"]
    variables = {"AWS_ENDPOINT_URL_SQS": f"http://localhost:{port}", "AWS_ENDPOINT_URL": elasticmq.endpoint}
    options = ("--listen", f"127.0.0.1:{port}")
    with proxy_service.start(elasticmq.endpoint, *options, to=f"sqs:{telemetry}", env=variables) as proxy:
        made = client(proxy.endpoint)
        sent = made.send_message(QueueUrl=new_queue(made), MessageBody="x")
        [record] = at_sqs.receive_message(QueueUrl=telemetry_url, WaitTimeSeconds=10)["Messages"]
        assert json.loads(record["Body"])["message_id"] == sent["MessageId"]
        assert proxy.stats()["calls"] == 2
        assert "AWS_ENDPOINT_URL_SQS is this proxy's own address" in proxy.log.read_text()


@pytest.mark.slow
def test_without_sqs_the_sdk_gets_an_error_that_it_retries() -> None:
    """The proxy answers 503 in the protocol's form; the SDK's own retries succeed once SQS is back."""
    port = free_port()
    with proxy_service.start(f"http://127.0.0.1:{port}") as proxy:
        with pytest.raises(ClientError, match="no answer") as caught:
            client(proxy.endpoint).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert caught.value.response["Error"]["Code"] == "ServiceUnavailable"
        back = threading.Event()

        def come_back() -> None:
            time.sleep(1.0)
            with fake_sqs(lambda _: (200, JSON, SENT), port):
                back.wait(30)

        thread = threading.Thread(target=come_back)
        thread.start()
        try:
            client(proxy.endpoint, 10).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")
        finally:
            back.set()
            thread.join()
        [event] = proxy.events()
        assert event["type"] == "sent"


@pytest.mark.slow
def test_an_https_endpoint_without_tls_is_named_in_the_sdks_error() -> None:
    """The application's log is where somebody looks; the name of an exception of the proxy's does not help there."""
    with (
        fake_sqs(lambda _: (200, JSON, SENT)) as plain,
        proxy_service.start(plain.endpoint.replace("http:", "https:")) as proxy,
        pytest.raises(ClientError, match="does not speak TLS: use http:// instead of https://"),
    ):
        client(proxy.endpoint).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")


@pytest.mark.slow
def test_a_retried_call_is_dated_by_its_answer() -> None:
    """The message may have been stored by any attempt; the hooks use the same rule."""
    asked_ms: list[float] = []

    def flaky(asked: Asked) -> tuple[int, str, bytes]:
        asked_ms.append(time.time() * 1000)
        return (500, JSON, b"{}") if "attempt=1" in asked.headers["amz-sdk-request"] else (200, JSON, SENT)

    with fake_sqs(flaky) as fake, proxy_service.start(fake.endpoint) as proxy:
        client(proxy.endpoint, 3).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")
        answered_ms = time.time() * 1000
        [event] = proxy.events()
    first_ms, second_ms = asked_ms
    assert first_ms < int(second_ms) <= event["at"] <= answered_ms


@pytest.mark.slow
def test_without_credentials_the_sdk_gets_an_error_that_it_retries(tmp_path: Path) -> None:
    """Once credentials exist, calls go through without a restart."""
    file = tmp_path / "credentials"
    env = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    env["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
    with fake_sqs(lambda _: (200, JSON, SENT)) as fake, proxy_service.start(fake.endpoint, env=env) as proxy:
        with pytest.raises(ClientError, match="no AWS credentials"):
            client(proxy.endpoint).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")
        file.write_text("[default]\naws_access_key_id = late\naws_secret_access_key = late\n")
        client(proxy.endpoint, 8).send_message(QueueUrl=f"{proxy.endpoint}/1/q", MessageBody="a")
        assert "Credential=late/" in fake.asked[0].headers["Authorization"]


def _raw_call(endpoint: str, operation: str) -> socket.socket:
    """Make a call without reading its answer."""
    body = json.dumps({"QueueUrl": f"{endpoint}/1/q", "MessageBody": "a", "WaitTimeSeconds": 20}).encode()
    host = urlsplit(endpoint).netloc
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Target: AmazonSQS.{operation}\r\nContent-Length: {len(body)}\r\n\r\n"
    made = socket.create_connection((urlsplit(endpoint).hostname, urlsplit(endpoint).port))
    made.sendall(head.encode() + body)
    return made


@pytest.mark.slow
def test_a_long_poll_is_cancelled_when_the_application_hangs_up() -> None:
    """Otherwise SQS would go on delivering messages to a closed connection."""
    release = threading.Event()

    def answer(_: Asked) -> tuple[int, str, bytes]:
        release.wait(20)
        return 200, JSON, _MESSAGE

    with fake_sqs(answer) as fake, proxy_service.start(fake.endpoint) as proxy:
        caller = _raw_call(proxy.endpoint, "ReceiveMessage")
        until(lambda: len(fake.asked) == 1, "SQS was asked")
        caller.close()
        assert fake.asked[0].hung_up.wait(5)
        release.set()
        assert proxy.events() == []
        assert proxy.stats()["in_flight"] == 0


@pytest.mark.slow
def test_a_send_is_completed_and_reported_when_the_application_hangs_up() -> None:
    """SQS already has the request by then."""
    release = threading.Event()

    def answer(_: Asked) -> tuple[int, str, bytes]:
        release.wait(20)
        return 200, JSON, SENT

    with fake_sqs(answer) as fake, proxy_service.start(fake.endpoint) as proxy:
        caller = _raw_call(proxy.endpoint, "SendMessage")
        until(lambda: len(fake.asked) == 1, "SQS was asked")
        caller.close()
        assert not fake.asked[0].hung_up.wait(0.5)
        release.set()
        until(lambda: proxy.stats()["accepted"] == 1, "the send is reported")
        assert [event["type"] for event in proxy.events()] == ["sent"]


@contextmanager
def _process(upstream: str, port: int, spool: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*proxy_service.command_line(upstream, "--to", f"spool:{spool}?max_age_s=60", *options)]
    command[command.index("127.0.0.1:0")] = f"127.0.0.1:{port}"
    process = subprocess.Popen(command, env=proxy_service.environment({}), stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), "the proxy listens")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _types(spool: Path) -> list[str]:
    return [event["type"] for event in spooled(spool)]


def test_sigterm_drains(elasticmq: ElasticMQ, tmp_path: Path) -> None:
    """The long poll in flight is answered, calls that the application still makes are forwarded, and all events arrive."""
    port = free_port()
    with _process(elasticmq.endpoint, port, tmp_path) as process, ThreadPoolExecutor(1) as pool:
        made = client(f"http://127.0.0.1:{port}")
        url = new_queue(made)
        polling = pool.submit(made.receive_message, QueueUrl=url, WaitTimeSeconds=10)
        stats = f"http://127.0.0.1:{port}/-/stats"
        until(lambda: httpx.get(stats).json()["in_flight"] == 1, "the long poll is in flight")
        process.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert process.poll() is None
        made.send_message(QueueUrl=url, MessageBody="a")
        [message] = polling.result(15)["Messages"]
        made.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert process.wait(15) == 0
    assert sorted(_types(tmp_path)) == ["deleted", "received", "sent"]


def _after_30_s(_: Asked) -> tuple[int, str, bytes]:
    time.sleep(30)
    return 200, JSON, b"{}"


@pytest.mark.slow
def test_the_drain_is_bounded(tmp_path: Path) -> None:
    """An application that keeps polling does not keep the proxy alive longer than `--drain-s`."""
    port = free_port()
    with (
        fake_sqs(_after_30_s) as fake,
        _process(fake.endpoint, port, tmp_path, "--drain-s", "1") as process,
        _raw_call(f"http://127.0.0.1:{port}", "ReceiveMessage"),
    ):
        until(lambda: len(fake.asked) == 1, "SQS was asked")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0  # the answer, after 30 s, was not waited for


@pytest.mark.parametrize(
    ("in_flight", "called_s_ago", "said"),
    [
        (2, 60, ["2 calls were still in flight after 0 s and are cut off"]),
        (0, -1, ["the application still called after 0 s; its further calls fail"]),
        (0, 60, []),
    ],
)
def test_only_what_a_stop_cuts_off_is_warned_of(
    caplog: pytest.LogCaptureFixture, in_flight: int, called_s_ago: float, said: list[str]
) -> None:
    """With `--drain-s 0`, each stop said that 0 calls were cut off."""
    handler = SimpleNamespace(in_flight=in_flight, last_call_s=time.monotonic() - called_s_ago)
    finished(running._drain(cast(Handler, handler), 0))
    assert [record.getMessage() for record in caplog.records] == said


def test_sdk_retries_bridge_a_sigkill_and_a_restart(elasticmq: ElasticMQ, tmp_path: Path) -> None:
    """Every call of a loop succeeds although the proxy is killed in the middle and restarted."""
    port = free_port()
    made = client(f"http://127.0.0.1:{port}", 12)
    stop = threading.Event()
    sent: list[str] = []

    def loop(url: str) -> None:
        while not stop.is_set():
            sent.append(made.send_message(QueueUrl=url, MessageBody="a")["MessageId"])

    with ThreadPoolExecutor(2) as pool:
        try:
            with _process(elasticmq.endpoint, port, tmp_path) as process:
                url = new_queue(made)
                running = [pool.submit(loop, url) for _ in range(2)]
                until(lambda: len(sent) > 50, "50 messages are sent")
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                killed_at = len(sent)
            with _process(elasticmq.endpoint, port, tmp_path):
                until(lambda: len(sent) > killed_at + 50, "50 more messages are sent", within_s=60)
                stop.set()
                for future in running:
                    future.result(30)
                found = made.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        finally:
            stop.set()
    there = int(found["Attributes"]["ApproximateNumberOfMessages"])
    # A call whose answer was lost with the proxy was retried, so each thread may have sent at most one message twice.
    assert len(sent) <= there <= len(sent) + 2


def test_sqs_itself_answers_invalid_requests(elasticmq: ElasticMQ, proxy_of_elasticmq: Proxy) -> None:
    """Broken bodies and unknown operations get the same answer as without the proxy."""
    import httpx

    for headers, body in (
        ({"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": JSON}, b'{"QueueUrl": '),
        ({"X-Amz-Target": "AmazonSQS.NoSuchOperation", "Content-Type": JSON}, b"{}"),
        ({"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": JSON}, b'{"QueueUrl": 3, "AttributeNames": 4}'),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"Action=NoSuchAction"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"%ff&&==&SendMessageBatchRequestEntry.=1"),
    ):
        direct, proxied = (
            httpx.post(endpoint, headers=headers, content=body) for endpoint in (elasticmq.endpoint, proxy_of_elasticmq.endpoint)
        )
        assert proxied.status_code == direct.status_code
        assert len(proxied.text) == len(direct.text)


@pytest.fixture(scope="module")
def proxy_of_elasticmq(elasticmq: ElasticMQ) -> Iterator[Proxy]:
    """A proxy in front of ElasticMQ only."""
    with proxy_service.start(elasticmq.endpoint) as made:
        yield made
