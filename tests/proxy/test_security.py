"""The proxy signs only for its own endpoints and only for SDKs, and logs nothing of what messages contain."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import boto3
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.proxy.fake_sqs import JSON, Asked, FakeSqs, fake_sqs
from tests.services import proxy as proxy_service
from tests.services.proxy import Proxy

_SECRET = "card-4111111111111111"
_SENT = b'{"MD5OfMessageBody":"d","MessageId":"3f1c9d5e-2f5d-4a59-8f0a-4c39f7d2b001"}'


@pytest.fixture(scope="module")
def _shared_fake() -> Iterator[FakeSqs]:
    with fake_sqs(lambda _: (200, JSON, _SENT)) as made:
        yield made


@pytest.fixture
def fake(_shared_fake: FakeSqs) -> FakeSqs:
    """An endpoint that answers every call as if a message had been sent, and has not been asked yet."""
    _shared_fake.asked.clear()
    return _shared_fake


@pytest.fixture(scope="module")
def fenced(_shared_fake: FakeSqs) -> Iterator[Proxy]:
    """A proxy for us-east-1 only; its counters are those of all tests so far."""
    with proxy_service.start(f"us-east-1={_shared_fake.endpoint}") as made:
        yield made


def _signed_for(region: str, service: str = "sqs") -> dict[str, str]:
    scope = f"Credential=APPKEY/20260101/{region}/{service}/aws4_request"
    return {
        "X-Amz-Target": "AmazonSQS.SendMessage",
        "Content-Type": JSON,
        "Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
    }


def test_the_applications_own_signature_does_not_leave_the_proxy(fake: FakeSqs, fenced: Proxy) -> None:
    """The forwarded request is correctly signed with the proxy's key and contains nothing of the application's credentials."""
    session = boto3.Session("APPKEY", "app-secret", "app-token", region_name="us-east-1")
    session.client("sqs", endpoint_url=fenced.endpoint).send_message(QueueUrl=f"{fenced.endpoint}/1/q", MessageBody="a")
    [asked] = fake.asked
    everything = f"{asked.headers}{asked.body!r}"
    assert "APPKEY" not in everything
    assert "app-token" not in everything
    _verify(asked, fake.endpoint)


def _verify(asked: Asked, endpoint: str) -> None:
    """Sign the request that arrived again, with botocore, and compare."""
    from datetime import datetime
    from unittest import mock

    found = str(asked.headers["Authorization"])
    names = found.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: asked.headers[name] for name in names if name not in ("host", "x-amz-date")}
    request = AWSRequest("POST", endpoint + asked.path, headers=headers, data=asked.body)
    at = datetime.strptime(asked.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")  # noqa: DTZ007 -- botocore's own is naive too
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        SigV4Auth(Credentials("proxy-key", "proxy-secret"), "sqs", "us-east-1").add_auth(request)
    assert found == request.headers["Authorization"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (_signed_for("eu-west-1"), "not for eu-west-1: add --region eu-west-1"),
        (_signed_for("us-east-1", "s3"), "signed for s3"),
        ({**_signed_for("us-east-1"), "Origin": "https://evil.example"}, "browsers"),
        ({**_signed_for("us-east-1"), "Sec-Fetch-Site": "cross-site"}, "browsers"),
    ],
)
def test_requests_not_configured_for_are_refused(fake: FakeSqs, fenced: Proxy, headers: dict[str, str], words: str) -> None:
    """Another region, another service or a browser gets 403 with the reason, and nothing is forwarded."""
    before = fenced.stats()["refused"]
    answer = httpx.post(fenced.endpoint, headers=headers, content=b"{}")
    assert answer.status_code == 403
    assert words in answer.text
    assert fake.asked == []
    assert fenced.stats()["refused"] == before + 1


@pytest.fixture(scope="module")
def named(_shared_fake: FakeSqs) -> Iterator[Proxy]:
    """A proxy that also goes by a name on the Internet."""
    allowed = {"QUEUEWATCH_PROXY_ALLOW_HOSTS": "sqs.shop.example, Proxy.Shop.example"}
    with proxy_service.start(_shared_fake.endpoint, env=allowed) as made:
        yield made


_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _call(proxy: Proxy, method: str, host: str, headers: dict[str, str], query: str = "", body: str = "") -> httpx.Response:
    target = f"{proxy.endpoint}/?{query}" if query else proxy.endpoint
    return httpx.request(method, target, headers={**headers, "Host": host}, content=body.encode())


@pytest.mark.parametrize(
    "host", ["evil.example:9410", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example.", "[::1"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_that_rebinds_its_name_to_the_proxy_is_refused(fake: FakeSqs, named: Proxy, host: str, method: str) -> None:
    """To the browser that is the page's own server, so only the name tells; the refusal says how to allow it."""
    query = "Action=ReceiveMessage&QueueUrl=http%3A%2F%2Fevil.example%2F1%2Fq"
    answer = _call(named, method, host, {**_signed_for("us-east-1"), **_FORM}, query)
    assert answer.status_code == 403
    assert "--allow-host" in answer.text
    assert fake.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost:9410",
        "127.0.0.1",
        "[::1]:9410",
        "10.2.3.4:9410",
        "queuewatch-proxy:9410",
        "queuewatch-proxy.shop.svc:9410",
        "queuewatch-proxy.shop.svc.cluster.local.",
        "host.docker.internal",
        "sqs.shop.example:9410",
        "proxy.shop.example",
    ],
)
def test_an_application_may_call_by_private_and_allowed_names(fake: FakeSqs, named: Proxy, host: str) -> None:
    """Such are a sidecar's, a container's, a service's and an address; letters count the same in both cases."""
    body = f'{{"QueueUrl":"http://{host}/1/q","MessageBody":"a"}}'
    assert _call(named, "POST", host, _signed_for("us-east-1"), body=body).status_code == 200
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("", {}, 403),
        ("", {"Authorization": _signed_for("us-east-1")["Authorization"]}, 200),
        ("&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=0", {}, 200),
    ],
)
def test_a_get_request_is_forwarded_only_if_it_is_signed(
    fake: FakeSqs, fenced: Proxy, query: str, headers: dict[str, str], status: int
) -> None:
    """A page can have a browser fetch any URL as an image, without the headers of a script."""
    url = quote(f"{fenced.endpoint}/1/q", safe="")
    answer = httpx.get(f"{fenced.endpoint}/?Action=PurgeQueue&QueueUrl={url}{query}", headers=headers)
    assert answer.status_code == status
    assert len(fake.asked) == (status == 200)
    assert ("signed" in answer.text) == (status == 403)


def test_the_message_of_a_signed_get_request_is_sent_as_a_form(fake: FakeSqs, fenced: Proxy) -> None:
    """SQS gets the message that the application has signed, of a content type with which it reads the parameters."""
    message = "literal %41 and a+b & 100%25"
    query = urlencode({"Action": "SendMessage", "QueueUrl": f"{fenced.endpoint}/1/q", "MessageBody": message}, quote_via=quote)
    headers = {"Authorization": _signed_for("us-east-1")["Authorization"]}
    assert httpx.get(f"{fenced.endpoint}/?{query}", headers=headers).status_code == 200
    [asked] = fake.asked
    assert asked.headers["Content-Type"] == _FORM["Content-Type"]
    assert parse_qs(asked.body.decode())["MessageBody"] == [message]
    _verify(asked, fake.endpoint)


def test_a_presigned_get_request_for_another_region_is_refused(fake: FakeSqs, fenced: Proxy) -> None:
    """Its URL has the region that a header has otherwise."""
    credential = quote("APPKEY/20260101/eu-west-1/sqs/aws4_request", safe="")
    answer = httpx.get(f"{fenced.endpoint}/?Action=ListQueues&X-Amz-Credential={credential}&X-Amz-Signature=0")
    assert answer.status_code == 403
    assert "not for eu-west-1" in answer.text
    assert fake.asked == []


def test_an_sdk_understands_the_refusal(fenced: Proxy) -> None:
    """The error has the form of the protocol."""
    session = boto3.Session("APPKEY", "app-secret", region_name="ap-south-1")
    with pytest.raises(ClientError, match="add --region ap-south-1"):
        session.client("sqs", endpoint_url=fenced.endpoint).send_message(QueueUrl="https://sqs.example/1/q", MessageBody="a")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "http://169.254.169.254/latest/meta-data"),
        ("POST", "//evil.example/1/q"),
        ("CONNECT", "evil.example:443"),
        ("GET", "/"),
        ("PUT", "/1/q"),
    ],
)
def test_no_request_reaches_any_other_host(fake: FakeSqs, fenced: Proxy, method: str, target: str) -> None:
    """An absolute URL, a path that looks like a host and CONNECT are refused, or sent to the endpoint as a path."""
    connection = http.client.HTTPConnection(urlsplit(fenced.endpoint).netloc, timeout=10)
    connection.putrequest(method, target, skip_host=False)
    for name, value in {**_signed_for("us-east-1"), "Content-Length": "2"}.items():
        connection.putheader(name, value)
    connection.endheaders(b"{}")
    status = connection.getresponse().status
    assert status in (200, 400, 403)
    assert (status == 200) == (len(fake.asked) == 1)
    for asked in fake.asked:
        assert asked.headers["Host"] == urlsplit(fake.endpoint).netloc


def test_a_queue_url_of_another_host_is_sent_to_the_endpoint(fake: FakeSqs, fenced: Proxy) -> None:
    """SQS checks the URL; the proxy connects only to its endpoint, whatever a parameter says."""
    body = json.dumps({"QueueUrl": "https://evil.example/1/q", "MessageBody": "a"}).encode()
    assert httpx.post(fenced.endpoint, headers=_signed_for("us-east-1"), content=body).status_code == 404
    assert json.loads(fake.asked[0].body)["QueueUrl"] == "https://evil.example/1/q"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", "0.0.0.0:0"], "--allow-remote"),
        (["--listen", "[::]:0"], "--allow-remote"),
        (["--listen", "9410"], "use HOST:PORT"),
        (["--endpoint", "https://key:secret@sqs.example"], "must be only https://host"),
        (["--endpoint", "ftp://sqs.example"], "not an endpoint"),
        (["--listen", "127.0.0.1:9410", "--endpoint", "http://127.0.0.1:9410"], "own address"),
        (["--listen", "0.0.0.0:9410", "--allow-remote", "--endpoint", "http://localhost:9410"], "own address"),
        (["--region", "mars-north-1x"], "no endpoint of SQS is known for"),
    ],
)
def test_unsafe_settings_are_refused(options: list[str], words: str) -> None:
    """The message says what to do, and the exit code is 2."""
    command = [*proxy_service.command_line("http://127.0.0.1:1")[:3], *options, "--to", "spool:/tmp/never"]
    done = subprocess.run(command, env=proxy_service.environment({}), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.slow
def test_no_log_contains_what_a_message_holds(fake: FakeSqs) -> None:
    """Broken JSON, forms and HTTP, and telemetry that cannot be sent, leave no content in the log."""
    with proxy_service.start(fake.endpoint, to="http://127.0.0.1:1/api/v1/events") as proxy:
        json_call = _signed_for("us-east-1")
        form = {**json_call, "Content-Type": "application/x-www-form-urlencoded"}
        del form["X-Amz-Target"]
        for headers, body in (
            (json_call, f'{{"QueueUrl":"{proxy.endpoint}/1/q","MessageBody":"{_SECRET}"}}'),
            (json_call, f'{{"MessageBody":"{_SECRET}'),
            (json_call, f'["{_SECRET}"]'),
            (json_call, f'{{"QueueUrl":{{"{_SECRET}":1}}}}'),
            (form, f"Action=ReceiveMessage&QueueUrl={proxy.endpoint}/1/q&MessageBody={_SECRET}"),
            (form, f"Action=SendMessageBatch&SendMessageBatchRequestEntry.{_SECRET}=1&MessageAttribute.{_SECRET}"),
        ):
            assert httpx.post(proxy.endpoint, headers=headers, content=body.encode()).status_code == 200
        connection = http.client.HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=10)
        connection.connect()
        connection.sock.sendall(f"POST / HTTP/1.1\r\n{_SECRET}\r\n\r\n".encode())
        assert b"400" in connection.sock.recv(100)
        assert proxy.stats()["telemetry_errors"] > 0
        text = proxy.log.read_text()
    assert "telemetry of a call is lost" in text
    assert _SECRET not in text
    assert "proxy-secret" not in text
