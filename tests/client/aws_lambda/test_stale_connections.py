"""Connections with TLS that are opened again: the other side closes them, or each payload has its own."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from queuewatch.aws_lambda.posting import HttpPoster
from queuewatch.transports import SendError, Transport
from queuewatch.transports.http import HttpTransport
from tests.sources.activemq import certificates

ANSWER = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"


class ClosingServer:
    """Answers one request of each connection, and then closes it without TLS' notice, as a load balancer does."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.connections = 0
        self.closed = threading.Semaphore(0)
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._server.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for _ in range(10):
            try:
                accepted, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            try:
                client = self._context.wrap_socket(accepted, server_side=True)
            except OSError:  # the client does not trust this certificate
                accepted.close()
                continue
            with client:
                received = b""
                while not received.endswith(b"\r\n\r\nevents"):
                    received += client.recv(65_536)
                client.sendall(ANSWER)
            self.closed.release()

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClosingServer]:
    """A server that the transports trust."""
    keystore, trusted = certificates.make(tmp_path)
    key, _, _ = pkcs12.load_key_and_certificates(keystore.keystore.read_bytes(), keystore.password.encode())
    assert key is not None
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key_file)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    found = ClosingServer(context)
    yield found
    found.close()


def test_a_stale_tls_connection_is_opened_again(server: ClosingServer) -> None:
    """Python reports its end as an SSL error that is no ConnectionError."""
    poster = HttpPoster(server.url, "service")
    for _ in range(3):
        poster.send(b"events")
        assert server.closed.acquire(timeout=10)
    assert server.connections == 3
    poster.close()


TRANSPORTS: list[Callable[[str], Transport]] = [HttpTransport, lambda url: HttpPoster(url, "service")]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["application", "function"])
def test_the_trusted_certificates_are_read_once(
    server: ClosingServer, monkeypatch: pytest.MonkeyPatch, transport: Callable[[str], Transport]
) -> None:
    """That takes 20 ms of processor time, which the application would lack each time."""
    make, made = ssl._create_default_https_context, []

    def counted() -> ssl.SSLContext:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(ssl, "_create_default_https_context", counted)
    opened = transport(server.url)
    for _ in range(3):
        opened.send(b"events")
        assert server.closed.acquire(timeout=10)
    assert (server.connections, len(made)) == (3, 1)
    opened.close()


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["application", "function"])
def test_certificates_that_are_replaced_are_read_again(
    server: ClosingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: Callable[[str], Transport]
) -> None:
    """A process that runs for months trusts a new authority without a restart."""
    (tmp_path / "other").mkdir()
    _, other = certificates.make(tmp_path / "other")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(other.read_bytes())
    trusted = Path(os.environ["SSL_CERT_FILE"])
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    opened = transport(server.url)
    with pytest.raises(SendError) as caught:
        opened.send(b"events")
    assert caught.value.retry
    bundle.write_bytes(trusted.read_bytes())
    opened.send(b"events")
    opened.close()
