"""The end of a TLS connection is noticed at once, and one to a broker that falls silent is closed without waiting for it."""

import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12

from sources.activemq.config import ActiveMQCollectorConfig, TlsConfig
from sources.activemq.connection import open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.inbox import Inbox
from tests.sources.activemq import certificates

CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.3.1\nheart-beat:0,0\n\n\0"
WITHIN_S = 60.0


Then = Callable[[ssl.SSLSocket], object]


@contextmanager
def silent_broker(
    folder: Path, answer: bytes, then: Then = lambda _: None, after: threading.Event | None = None
) -> Iterator[ActiveMQCollectorConfig]:
    """Run a TLS server that answers the login with `answer` and then neither reads nor writes; yield a configuration for it.

    Once `after` is set, it does `then` with the connection.
    """
    tls, trusted = certificates.make(folder)
    key, certificate, _ = pkcs12.load_key_and_certificates(tls.keystore.read_bytes(), tls.password.encode())
    assert key is not None
    assert certificate is not None
    chain = folder / "server.pem"
    chain.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(4_096)
                connection.sendall(answer)
                if after is not None and after.wait(WITHIN_S):
                    then(connection)
                over.wait()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"stomp+ssl://127.0.0.1:{server.getsockname()[1]}"
        try:
            yield ActiveMQCollectorConfig(addresses=(address,), tls=TlsConfig(ca_file=trusted), connect_timeout_s=1)
        finally:
            over.set()
            thread.join(5)


def visited(config: ActiveMQCollectorConfig) -> bool:
    """Log in, if that is answered, and leave; return whether this came to an end."""

    def visit() -> None:
        [address] = config.parsed_addresses()
        inbox = Inbox(10)
        try:
            session = open_session(config, address, inbox)
        except BrokerUnavailable:
            return
        inbox.close()
        session.close()

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    return not thread.is_alive()


@pytest.mark.parametrize("answer", [CONNECTED, b""], ids=["silent after the login", "silent from the start"])
def test_a_silent_broker_is_left(tmp_path: Path, answer: bytes) -> None:
    with silent_broker(tmp_path, answer) as config:
        assert visited(config)


def reset(connection: ssl.SSLSocket) -> None:
    """End a connection without a goodbye, as a broker that is killed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


UNREADABLE = b"MESSAGE\ndestination:/a\ncontent-length:-5\n\nbody\0"


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (lambda connection: connection.shutdown(socket.SHUT_RDWR), ""),
        (reset, ""),
        (lambda connection: connection.sendall(UNREADABLE), "what it sends cannot be read: content-length:-5"),
    ],
    ids=["closed", "reset", "unreadable"],
)
def test_the_end_of_a_connection_is_noticed_at_once(tmp_path: Path, then: Then, why: str) -> None:
    """Reading went on without a pause until the silence was too long, and the advisories of that minute were lost."""
    logged_in = threading.Event()
    with silent_broker(tmp_path, CONNECTED, then, logged_in) as config:
        [address] = config.parsed_addresses()
        inbox = Inbox(10)
        session = open_session(config, address, inbox)
        logged_in.set()
        taken = inbox.take(WITHIN_S / 6)
        inbox.close()
        session.close()
    assert [(incoming.kind, incoming.body) for incoming in taken] == [("disconnected", why)]


_CONNECTS = """
import sys
from sources.activemq.config import ActiveMQCollectorConfig, TlsConfig
from sources.activemq.connection import open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.inbox import Inbox

address, trusted, key = sys.argv[1:]
tls = TlsConfig(ca_file=trusted, certificate_file=trusted, key_file=key, key_password_env="KEY_PASSWORD")
config = ActiveMQCollectorConfig(addresses=(address,), tls=tls, connect_timeout_s=1)
try:
    open_session(config, config.parsed_addresses()[0], Inbox(10))
except BrokerUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("password", [None, "", "another one"])
def test_the_missing_or_wrong_password_of_a_key_is_an_error_and_no_question(tmp_path: Path, password: str | None) -> None:
    """OpenSSL asks for it at the terminal, or on standard input, if it is given none at all: the collector waited for ever."""
    tls, trusted = certificates.make(tmp_path)
    key, _, _ = pkcs12.load_key_and_certificates(tls.keystore.read_bytes(), tls.password.encode())
    assert key is not None
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"the password")))
    environment = {**os.environ, **({} if password is None else {"KEY_PASSWORD": password})}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"stomp+ssl://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", _CONNECTS, address, str(trusted), str(encrypted)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as child:
            assert child.stdout is not None
            try:
                child.wait(WITHIN_S / 2)
                assert "this client's certificate cannot be used" in child.stdout.read()
            finally:
                child.kill()
