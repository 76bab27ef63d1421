"""Half-open requests, slow senders and readers, unknown host names, credentials and TLS, with real sockets and clients."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sinks.http import (
    Access,
    CannotListenError,
    ConnectionLimits,
    Credentials,
    HttpSettings,
    IngestSettings,
    Page,
    RunningServer,
    Spool,
    Tls,
    create_app,
    serve,
)
from sinks.http.unread import UnreadResponses
from sinks.store import SnapshotStore
from tests.sinks.http.conftest import Service, StartService
from tests.waiting import until


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool in a folder of its own."""
    return Spool(tmp_path / "spool")


def connect(service: Service, sends: bytes = b"") -> socket.socket:
    """Open a plain connection and send the given bytes."""
    host, port = service.url.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=10)
    found.sendall(sends)
    return found


def is_healthy(stream: socket.socket) -> bool:
    """Read one answer to HEALTH, which may come in pieces."""
    answer = b""
    while not answer.endswith(b'{"healthy":true}'):
        part = stream.recv(4_096)
        if not part:
            return False
        answer += part
    return b" 200 " in answer


def limited(start: StartService, **limits: float) -> Service:
    """Start a service with these connection limits."""
    return start(None, HttpSettings(connections=ConnectionLimits(**limits)))  # type: ignore[arg-type]


def until_cut(service: Service, sends: bytes) -> None:
    """Open a connection and wait until its deadline closes it: by then, the deadlines of earlier connections have passed."""
    with connect(service, sends) as later:
        while later.recv(4_096):
            pass


def refused(service: Service, reason: str) -> float:
    """Return how often requests were refused for this reason, from `/metrics`."""
    [line] = [x for x in service.client.get("/metrics").text.splitlines() if f'http_refused_total{{reason="{reason}"}}' in x]
    return float(line.split()[-1])


@pytest.mark.parametrize(
    "half",
    [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST /api/v1/events HTTP/1.1\r\nX: "],
    ids=["nothing", "half the headers", "half a header"],
)
def test_half_open_requests_are_closed(start: StartService, half: bytes) -> None:
    """Half-open requests are closed at the deadline and counted: they use up the job's own file descriptors."""
    service = limited(start, headers_within_s=0.3)
    with connect(service, half) as stream:
        while stream.recv(4_096):  # fails when the connection is still open after the socket's own ten seconds
            pass
    assert refused(service, "slow_headers") == 1


@pytest.mark.slow
def test_single_bytes_do_not_extend_the_deadline(start: StartService) -> None:
    """A slowloris client, which sends its headers a few bytes at a time, is still closed at the deadline."""
    service = limited(start, headers_within_s=0.5)
    with connect(service, b"GET / HTTP/1.1\r\n") as stream:

        def is_closed() -> bool:
            try:
                stream.sendall(b"X: y\r\n")
            except OSError:
                return True
            return False

        # Each try would extend a deadline that counts from the last byte.
        until(is_closed, "the connection is closed", every_s=0.1)
    assert refused(service, "slow_headers") == 1


HEALTH = b"GET /-/healthy HTTP/1.1\r\nHost: a\r\n"
EVENTS = b"POST /api/v1/events HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEALTH + b"Content-Length: 100000\r\n\r\n", b" 200 "),
        (HEALTH + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n", b" 200 "),
        (EVENTS + b"Content-Length: 100000\r\n\r\n", b" 401 "),
    ],
    ids=["body of a probe", "chunked body of a probe", "events without the token"],
)
def test_single_bytes_of_a_body_that_nobody_reads_do_not_hold_the_connection(
    start: StartService, spool: Spool, request_: bytes, status: bytes
) -> None:
    """Such a body needs no credentials, and 64 of them would use up the connections of an address."""
    limits = ConnectionLimits(rest_of_body_within_s=0.5)
    service = start(None, HttpSettings(connections=limits, ingest=IngestSettings(spool, token="s3cret")))
    with connect(service, request_) as stream:
        assert status in stream.recv(4_096)

        def is_closed() -> bool:
            try:
                stream.sendall(b"x")
            except OSError:
                return True
            return False

        until(is_closed, "the connection is closed", every_s=0.1)
    assert refused(service, "slow_body") == 1


@pytest.mark.slow
def test_a_body_that_ends_after_its_answer_leaves_the_connection_open(start: StartService) -> None:
    """The deadline ends with the body: the connection then serves further requests."""
    service = limited(start, rest_of_body_within_s=0.4)
    with connect(service, HEALTH + b"Content-Length: 2\r\n\r\nx") as stream:
        assert is_healthy(stream)
        stream.sendall(b"x")
        until_cut(service, HEALTH + b"Content-Length: 2\r\n\r\nx")
        stream.sendall(HEALTH + b"\r\n")
        assert is_healthy(stream)
    assert refused(service, "slow_body") == 1


@pytest.mark.slow
def test_a_body_that_is_read_has_only_the_deadline_of_its_reader(start: StartService, spool: Spool) -> None:
    """A slow sender of events may take longer than a body that nobody reads."""
    limits = ConnectionLimits(headers_within_s=0.3, rest_of_body_within_s=0.3)
    service = start(None, HttpSettings(connections=limits, ingest=IngestSettings(spool)))
    body = b'{"v":1,"type":"sent","at":1700000000000,"system":"aws_sqs","queue":"q","message_id":"a"}'
    with connect(service, EVENTS + b"Content-Length: %d\r\n\r\n" % len(body)) as stream:
        for i in range(0, len(body), 8):
            stream.sendall(body[i : i + 8])
            time.sleep(0.08)
        assert b" 202 " in stream.recv(4_096)
    assert refused(service, "slow_body") == 0


@pytest.mark.slow
def test_the_header_deadline_does_not_apply_after_the_headers(start: StartService) -> None:
    """The page's event stream stays open for hours."""
    service = limited(start, headers_within_s=0.2)
    with httpx.stream("GET", f"{service.url}/api/v1/stream", timeout=10) as stream:
        until_cut(service, b"GET")
        assert stream.status_code == 200
        assert next(stream.iter_lines()) is not None
    assert refused(service, "slow_headers") == 1


def test_head_of_the_event_stream_ends_with_its_headers(start: StartService) -> None:
    """A proxy's check with HEAD leaves the connection free for the next request, and takes no place among the streams."""
    with httpx.Client(base_url=limited(start).url, timeout=10) as client:
        answer = client.head("/api/v1/stream")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert client.get("/-/healthy").status_code == 200


@pytest.mark.slow
def test_connections_per_address_are_capped_and_free_their_slots(start: StartService) -> None:
    """Without a cap, 140 half-open requests exhausted the driver's file descriptors."""
    service = limited(start, per_address=8, headers_within_s=60)
    service.client.get("/-/healthy")
    with ExitStack() as stack:
        streams = [stack.enter_context(connect(service, b"GET /")) for _ in range(30)]
        closed = 0
        for stream in streams:
            stream.settimeout(0.3)
            try:
                closed += stream.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
        assert closed == 30 - 7
        assert service.client.get("/-/healthy").status_code == 200
        assert refused(service, "per_address") == 23
    until(
        lambda: "queuewatch_http_connections 1\n" in service.client.get("/metrics").text,
        "only the connection of the test's client is open",
        shows=lambda: service.client.get("/metrics").text,
    )
    with connect(service, b"GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\n") as stream:
        assert stream.recv(100).startswith(b"HTTP/1.1 200")


def test_the_total_of_connections_is_capped(start: StartService) -> None:
    """The total limit applies whatever address the connections come from."""
    service = limited(start, total=2)
    service.client.get("/-/healthy")
    with connect(service), connect(service) as second, suppress(ConnectionResetError):
        assert second.recv(1) == b""
    assert refused(service, "total") == 1


@pytest.mark.slow
def test_a_reader_that_reads_nothing_is_disconnected(start: StartService) -> None:
    """A response that is not read stays in memory, so the connection is closed."""
    service = limited(start, read_within_s=0.4)
    with connect(service) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stream.sendall(b"GET /assets/app.js HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000)
        until(lambda: refused(service, "slow_reader"), "the reader is disconnected")
    assert refused(service, "slow_reader") == 1


LARGE = Page(b"0123456789abcdef" * (1 << 20))
"""16 MiB: more than the system buffers for a connection."""
ASKS = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"


def with_large_page(tls: Tls | None = None, **limits: float) -> RunningServer:
    """Start a service that serves LARGE at `/large`, with these connection limits."""
    connections = ConnectionLimits(**limits)  # type: ignore[arg-type]
    return serve(create_app(SnapshotStore(), HttpSettings(connections=connections, pages={"/large": LARGE})), port=0, tls=tls)


def asking(server: RunningServer) -> socket.socket:
    """Open a connection that asks for the large page, and wait until the answer has begun."""
    stream = socket.create_connection((server.host, server.port), timeout=10)
    stream.sendall(ASKS)
    assert stream.recv(15) == b"HTTP/1.1 200 OK"
    return stream


def length_of(stream: socket.socket) -> int:
    """Read an answer to its end and return the length of its body; fewer bytes if the connection is cut."""
    head = stream.recv(1 << 20).partition(b"\r\n\r\n")
    length = len(head[2])
    with suppress(ConnectionResetError):
        while length < len(LARGE.body) and (part := stream.recv(1 << 20)):
            length += len(part)
    return length


@pytest.mark.slow
def test_responses_that_nobody_reads_do_not_use_up_the_memory() -> None:
    """Each of them is held whole. The oldest ones are cut, so that whoever reads gets a response."""
    with with_large_page(unread_bytes=3 * len(LARGE.body)) as server, ExitStack() as stack:
        unread = [stack.enter_context(asking(server)) for _ in range(6)]
        assert httpx.get(f"{server.url}/large", headers={"Accept-Encoding": "identity"}, timeout=30).content == LARGE.body
        whole = [length_of(stream) == len(LARGE.body) for stream in unread]
        assert whole == [False] * 4 + [True] * 2
        metrics = httpx.get(f"{server.url}/metrics").text
        assert 'queuewatch_http_refused_total{reason="slow_reader"} 4' in metrics


@pytest.mark.slow
def test_a_reader_that_reads_nothing_is_cut_when_the_service_stops(caplog: pytest.LogCaptureFixture) -> None:
    """Its request is not cancelled, which would log a traceback with every stop."""
    server = with_large_page()
    with asking(server):
        server.stop()
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text


@pytest.mark.parametrize(
    ("clients", "cut"),
    [
        ("aaab", [0]),
        ("abbc", [1]),
        ("abab", [0]),
        ("aaaaab", [0, 1, 2]),
    ],
    ids=["the oldest", "of the client that has most", "the older of two clients", "as many as needed"],
)
def test_the_oldest_responses_of_the_client_that_has_most_make_room(clients: str, cut: list[int]) -> None:
    """A client that asks for more and more does not keep others from getting a response."""
    unread, found = UnreadResponses(30), list[int]()
    with ExitStack() as stack:
        for number, client in enumerate(clients):
            stack.enter_context(unread.holding(client, 10, partial(found.append, number)))
    assert found == cut
    with unread.holding("a", 31, found.clear):
        assert found == cut


@pytest.mark.slow
def test_a_reader_over_tls_that_reads_nothing_is_disconnected(tls: Tls) -> None:
    """TLS takes over any number of bytes at once, so that the rest of a response must wait until they are read."""
    trusting = ssl.create_default_context(cafile=str(tls.cert_file))
    with with_large_page(tls, read_within_s=0.4) as server:
        plain = socket.create_connection((server.host, server.port), timeout=10)
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            stream.sendall(ASKS)

            def refused_() -> bool:
                return 'reason="slow_reader"} 1\n' in httpx.get(f"{server.url}/metrics", verify=trusting).text

            until(refused_, "the reader is disconnected")


HOSTS = [
    ("127.0.0.1:9400", 200),
    ("[::1]:9400", 200),
    ("localhost", 200),
    ("LOCALHOST:9400", 200),
    ("queuewatch:9400", 200),
    ("queuewatch.monitoring.svc.cluster.local", 200),
    ("queuewatch.example.com:9400", 200),
    ("Queuewatch.Example.com.", 200),
    ("evil.example.com", 421),
    ("127.0.0.1.evil.example.com", 421),
    ("localhost.evil.com:9400", 421),
    ("[::1", 421),
    ("", 421),
]


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_only_host_names_of_this_service_are_answered(start: StartService, host: str, status: int) -> None:
    """The check stops DNS rebinding: a foreign page that resolves to this address still sends its own Host header."""
    service = start(None, HttpSettings(access=Access(hosts=("queuewatch.example.com",))))
    for path in ("/", "/metrics", "/api/v1/signals"):
        answer = service.client.get(path, headers={"Host": host})
        assert answer.status_code == (503 if status == 200 and answer.status_code == 503 else status)
    if status == 421:
        assert "http.allowed_hosts" in answer.json()["error"]["fix"]
    assert service.client.get("/-/healthy", headers={"Host": host}).status_code == 200


def test_any_host_name_can_be_allowed(start: StartService) -> None:
    """`*` allows any name, for a service behind a proxy that checks names itself."""
    service = start(None, HttpSettings(access=Access(hosts=("*",))))
    assert service.client.get("/", headers={"Host": "anything.example.com"}).status_code == 200


def basic(user: str, password: str) -> str:
    """Return the value of an `Authorization` header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


PAGE = Credentials("ops", "pässword:1", None)
METRICS = Credentials(None, None, "scrape-me")
BOTH = Credentials("ops", "secret", "token")
ANSWERS = [
    (PAGE, "/", None, 401, 'Basic realm="queuewatch", charset="UTF-8"'),
    (PAGE, "/", basic("ops", "pässword:1"), 200, None),
    (PAGE, "/api/v1/queue", basic("ops", "wrong"), 401, 'Basic realm="queuewatch", charset="UTF-8"'),
    (PAGE, "/", basic("root", "pässword:1"), 401, 'Basic realm="queuewatch", charset="UTF-8"'),
    (PAGE, "/", "Basic !!!", 401, 'Basic realm="queuewatch", charset="UTF-8"'),
    (PAGE, "/", "Bearer pässword:1", 401, 'Basic realm="queuewatch", charset="UTF-8"'),
    (PAGE, "/metrics", "Bearer scrape-me", 200, None),
    (PAGE, "/metrics", None, 401, 'Bearer realm="queuewatch"'),
    (PAGE, "/metrics", "Bearer wrong", 401, 'Bearer realm="queuewatch", error="invalid_token"'),
    (PAGE, "/metrics", basic("ops", "pässword:1"), 401, 'Bearer realm="queuewatch"'),
    (PAGE, "/metrics/native", "Bearer scrape-me", 406, None),  # as it does not accept protobuf
    (PAGE, "/metrics/native", None, 401, 'Bearer realm="queuewatch"'),
    (PAGE, "/-/healthy", None, 200, None),
    (BOTH, "/", "bearer token", 200, None),
    (BOTH, "/", basic("ops", "secret"), 200, None),
    (BOTH, "/", "Bearer x", 401, 'Basic realm="queuewatch", charset="UTF-8", Bearer realm="queuewatch", error="invalid_token"'),
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "path", "authorization", "status", "challenge"), ANSWERS)
def test_page_and_metrics_have_credentials_of_their_own(
    start: StartService, page: Credentials, path: str, authorization: str | None, status: int, challenge: str | None
) -> None:
    """A refusal names the accepted schemes and nothing else."""
    service = start(None, HttpSettings(access=Access(page=page, metrics=METRICS)))
    headers = {} if authorization is None else {"Authorization": authorization.encode()}
    answer = service.client.get(path, headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.headers.get("www-authenticate")) == (status, challenge)


@pytest.mark.parametrize("path", ["/metrics%0A", "/metrics/native%0a"])
def test_a_line_break_at_the_end_of_a_path_changes_no_credentials(start: StartService, path: str) -> None:
    """The router finds the same route, so everybody whom the page asks for nothing could read the metrics."""
    service = start(None, HttpSettings(access=Access(metrics=METRICS)))
    assert service.client.get(path).status_code == 401


def test_ingest_requires_only_its_own_token(start: StartService) -> None:
    """Workers have the ingest token, not the page's password."""
    service = start(None, HttpSettings(access=Access(page=PAGE, metrics=METRICS)))
    assert service.client.post("/api/v1/events").status_code == 404  # 404: ingest is disabled here; not 401


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A self-signed certificate for 127.0.0.1."""
    return certified(tmp_path_factory.mktemp("tls"))


def certified(folder: Path) -> Tls:
    """Write a self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "queuewatch test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(minutes=5))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    made = Tls(folder / "cert.pem", folder / "key.pem")
    made.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    made.key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return made


def test_https_with_real_clients(tls: Tls) -> None:
    """httpx, and curl if installed, verify the certificate and authenticate."""
    app = create_app(SnapshotStore(), HttpSettings(access=Access(metrics=BOTH)))
    with serve(app, port=0, tls=tls) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(tls.cert_file))
        answer = httpx.get(f"{server.url}/metrics", verify=trusting, auth=("ops", "secret"))
        assert answer.status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/metrics")
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http"))
        if curl := shutil.which("curl"):
            words = [
                curl,
                "-sS",
                "--cacert",
                str(tls.cert_file),
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                f"{server.url}/metrics",
            ]
            for further, code in ((["-u", "ops:secret"], "200"), (["-H", "Authorization: Bearer token"], "200"), ([], "401")):
                done = subprocess.run([*words, *further], capture_output=True, text=True, timeout=30, check=True)
                assert done.stdout == code


def test_a_handshake_that_is_not_begun_has_the_deadline_of_the_limits(tls: Tls) -> None:
    """Otherwise whoever opens connections and is silent would hold all of them for a minute each."""
    app = create_app(SnapshotStore(), HttpSettings(connections=ConnectionLimits(handshake_within_s=0.2)))
    with serve(app, port=0, tls=tls) as server, socket.create_connection((server.host, server.port), timeout=5) as silent:
        assert silent.recv(1) == b""


def test_connections_without_a_handshake_count_too(tls: Tls) -> None:
    """Each is a file descriptor of the job's process, though its TLS has not begun."""
    limits = ConnectionLimits(per_address=4, handshake_within_s=60)
    app = create_app(SnapshotStore(), HttpSettings(connections=limits))
    with serve(app, port=0, tls=tls) as server, ExitStack() as stack:
        here = (server.host, server.port)
        held = [stack.enter_context(socket.create_connection(here, timeout=5)) for _ in range(4)]
        with socket.create_connection(here, timeout=5) as beyond, suppress(ConnectionResetError):
            assert beyond.recv(1) == b""
        held[0].close()
        trusting = ssl.create_default_context(cafile=str(tls.cert_file))

        def answers() -> bool:
            return httpx.get(f"{server.url}/-/healthy", verify=trusting).status_code == 200

        until(answers, "the closed one has left", despite=httpx.TransportError)


def test_an_unusable_certificate_is_named(tls: Tls, tmp_path: Path) -> None:
    """The error names the certificate, before any thread is started."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for unusable in (broken, Path("a\0b")):
        with pytest.raises(CannotListenError, match=r"http\.tls cannot be used"):
            serve(create_app(SnapshotStore()), port=0, tls=Tls(unusable, tls.key_file))


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The service runs for longer than a certificate is valid. Half of a renewed pair must not end the one in use."""
    caplog.set_level("INFO", "sinks.http.server")
    for name in ("new", "used"):
        (tmp_path / name).mkdir()
    new, used = certified(tmp_path / "new"), replace(certified(tmp_path / "used"), looked_at_every_s=0.05)
    old = ssl.create_default_context(cafile=str(used.cert_file))
    renewed = ssl.create_default_context(cafile=str(new.cert_file))
    with serve(create_app(SnapshotStore()), port=0, tls=used) as server:

        def answers(trusted: ssl.SSLContext) -> bool:
            return httpx.get(f"{server.url}/-/healthy", verify=trusted).status_code == 200

        assert answers(old)
        new.cert_file.replace(used.cert_file)
        until(lambda: "cannot be used" in caplog.text, "the certificate without its key is refused")
        assert answers(old)
        new.key_file.replace(used.key_file)
        until(lambda: answers(renewed), "the renewed certificate is used", despite=httpx.TransportError)
        with pytest.raises(httpx.ConnectError):
            answers(old)


NDJSON, PART = "application/x-ndjson", b"3\r\nabc\r\n"


@pytest.mark.parametrize(
    ("content_type", "first", "status"),
    [(NDJSON, b"", b"400"), (NDJSON, PART, b"400"), ("text/html", b"", b"400"), ("text/html", PART, b"415")],
    ids=["before it is read", "while it is read", "before another refusal", "after another refusal"],
)
def test_a_body_that_becomes_invalid_is_refused_without_a_traceback(
    spool: Spool, start: StartService, caplog: pytest.LogCaptureFixture, content_type: str, first: bytes, status: bytes
) -> None:
    """Whoever reaches the port could fill the log otherwise."""
    service = start(None, HttpSettings(ingest=IngestSettings(spool)))
    headers = f"Host: 127.0.0.1\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    begun, invalid = b"POST /api/v1/events HTTP/1.1\r\n" + headers.encode() + first, b"ZZ\r\nabc\r\n"
    stream = connect(service, begun if first else begun + invalid)
    if first:
        time.sleep(0.3)
        stream.sendall(invalid)
    answer = b"".join(iter(lambda: stream.recv(4_096), b""))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert service.client.get("/-/healthy").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"], caplog.text
