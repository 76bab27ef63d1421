"""Half-open requests, slow senders and readers, unknown host names, credentials and TLS: with real sockets and clients."""

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
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sinks.http import Access, CannotListenError, ConnectionLimits, Credentials, HttpSettings, Tls, create_app, serve
from sinks.http.access import host_name
from sinks.store import SnapshotStore
from tests.sinks.http.conftest import Service, StartService


def connect(service: Service, sends: bytes = b"") -> socket.socket:
    """A plain connection that has sent something."""
    host, port = service.url.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=10)
    found.sendall(sends)
    return found


def limited(start: StartService, **limits: float) -> Service:
    """A service with these limits."""
    return start(None, HttpSettings(connections=ConnectionLimits(**limits)))  # type: ignore[arg-type]


def refused(service: Service, reason: str) -> float:
    """How often, as `/metrics` has it."""
    [line] = [x for x in service.client.get("/metrics").text.splitlines() if f'http_refused_total{{reason="{reason}"}}' in x]
    return float(line.split()[-1])


@pytest.mark.parametrize(
    "half",
    [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST /api/v1/events HTTP/1.1\r\nX: "],
    ids=["nothing", "half the headers", "half a header"],
)
def test_half_open_requests_are_ended(start: StartService, half: bytes) -> None:
    """And counted; the descriptor is the job's own."""
    service = limited(start, headers_within_s=0.3)
    with connect(service, half) as stream:
        began = time.monotonic()
        while stream.recv(4_096):
            pass
        assert time.monotonic() - began < 5
    assert refused(service, "slow_headers") == 1


def test_a_byte_now_and_then_does_not_prolong_the_deadline(start: StartService) -> None:
    """Slowloris."""
    service = limited(start, headers_within_s=0.5)
    sent = 0
    with connect(service, b"GET / HTTP/1.1\r\n") as stream, suppress(OSError):
        for sent in range(40):  # noqa: B007 - how far it came
            stream.sendall(b"X: y\r\n")
            time.sleep(0.1)
    assert sent < 30
    assert refused(service, "slow_headers") == 1


def test_what_is_slow_after_its_headers_is_not_ended_by_their_deadline(start: StartService) -> None:
    """A page's stream lasts for hours."""
    service = limited(start, headers_within_s=0.2)
    with httpx.stream("GET", f"{service.url}/api/v1/stream", timeout=10) as stream:
        time.sleep(0.6)
        assert stream.status_code == 200
        assert next(stream.iter_lines()) is not None
    assert refused(service, "slow_headers") == 0


def test_connections_of_one_address_are_capped_and_give_their_room_back(start: StartService) -> None:
    """140 half-open requests exhausted the descriptors of the driver."""
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
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and "queuewatch_http_connections 1.0" not in service.client.get("/metrics").text:
        time.sleep(0.05)
    with connect(service, b"GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\n") as stream:
        assert stream.recv(100).startswith(b"HTTP/1.1 200")


def test_connections_of_all_addresses_are_capped(start: StartService) -> None:
    """Whoever they are."""
    service = limited(start, total=2)
    service.client.get("/-/healthy")
    with connect(service), connect(service) as second, suppress(ConnectionResetError):
        assert second.recv(1) == b""
    assert refused(service, "total") == 1


def test_a_reader_that_takes_nothing_is_cut_off(start: StartService) -> None:
    """Its answer fills memory as long as it waits."""
    service = limited(start, read_within_s=0.4)
    with connect(service) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stream.sendall(b"GET /assets/app.js HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not refused(service, "slow_reader"):
            time.sleep(0.1)
    assert refused(service, "slow_reader") == 1


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
def test_only_names_of_this_service_are_answered(start: StartService, host: str, status: int) -> None:
    """A stranger's page that rebinds its name to this address keeps its name in the Host header."""
    service = start(None, HttpSettings(access=Access(hosts=("queuewatch.example.com",))))
    for path in ("/", "/metrics", "/api/v1/signals"):
        answer = service.client.get(path, headers={"Host": host})
        assert answer.status_code == (503 if status == 200 and answer.status_code == 503 else status)
    if status == 421:
        assert "http.allowed_hosts" in answer.json()["error"]["fix"]
    assert service.client.get("/-/healthy", headers={"Host": host}).status_code == 200


def test_any_name_where_it_is_wanted(start: StartService) -> None:
    """Behind a proxy that checks names itself."""
    service = start(None, HttpSettings(access=Access(hosts=("*",))))
    assert service.client.get("/", headers={"Host": "anything.example.com"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:1", "a"), ("[::1]:1", "::1"), ("[::1]x", None), ("A.", "a"), (":1", None), ("1.2.3.4", "1.2.3.4")],
)
def test_the_name_in_a_host_header(header: str, name: str | None) -> None:
    """Without port, brackets and the root's dot."""
    assert host_name(header) == name


def basic(user: str, password: str) -> str:
    """The value of `Authorization`."""
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
    (PAGE, "/-/healthy", None, 200, None),
    (BOTH, "/", "bearer token", 200, None),
    (BOTH, "/", basic("ops", "secret"), 200, None),
    (BOTH, "/", "Bearer x", 401, 'Basic realm="queuewatch", charset="UTF-8", Bearer realm="queuewatch", error="invalid_token"'),
]


@pytest.mark.parametrize(("page", "path", "authorization", "status", "challenge"), ANSWERS)
def test_page_and_metrics_have_credentials_of_their_own(
    start: StartService, page: Credentials, path: str, authorization: str | None, status: int, challenge: str | None
) -> None:
    """And the answer says which are wanted, without saying more."""
    service = start(None, HttpSettings(access=Access(page=page, metrics=METRICS)))
    headers = {} if authorization is None else {"Authorization": authorization.encode()}
    answer = service.client.get(path, headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.headers.get("www-authenticate")) == (status, challenge)


def test_ingest_asks_for_its_own_token_alone(start: StartService) -> None:
    """A Worker knows the token of ingest, not a person's password."""
    service = start(None, HttpSettings(access=Access(page=PAGE, metrics=METRICS)))
    assert service.client.post("/api/v1/events").status_code == 404  # off, not forbidden


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate for 127.0.0.1 that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
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
    """httpx, and curl where it is installed, verify the certificate and show credentials."""
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


def test_a_certificate_that_cannot_be_used_is_named(tls: Tls, tmp_path: Path) -> None:
    """Before any thread is started."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(CannotListenError, match=r"http\.tls cannot be used"):
        serve(create_app(SnapshotStore()), port=0, tls=Tls(broken, tls.key_file))
