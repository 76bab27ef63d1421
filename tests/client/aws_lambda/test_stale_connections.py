"""Keep-alive connections with TLS that the other side closed while the function was frozen."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from queuewatch.aws_lambda.posting import HttpPoster
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
            with self._context.wrap_socket(accepted, server_side=True) as client:
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
