"""One STOMP connection to a broker: login, subscriptions, requests. Its input goes to an `Inbox`."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import stomp

from queuewatch.clock import now_ms
from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.connection_diagnosis import unreachable
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.frames import Frame, FrameCutter
from sources.activemq.inbox import Inbox, Incoming

_HEARTBEAT_MS = 10_000
_READ_BYTES = 262_144
_NEVER = 1_000_000.0
"""Factor on the time after which stomp.py itself gives up a silent connection: while the inbox is full
nothing is read, which it would mistake for silence."""

_CLOSED = "the connection was closed before the login was answered"
_NOT_STOMP = "is this the broker's STOMP connector, and stomp+ssl where it speaks TLS?"

log = logging.getLogger(__name__)


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """Translates the calls of stomp.py's reading thread into the inbox's plain values."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.settled = threading.Event()
        """Set once the login was accepted or refused."""
        self.server: str | None = None
        self.refusal: str | None = None
        self.ended_by: str = ""
        """Why this side ended the connection; empty if the broker did."""
        self.last_heard_s = time.monotonic()
        self.is_handing_over = False
        """True while a full inbox blocks this thread from reading: the broker is not silent then."""

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        self.last_heard_s = time.monotonic()
        self.server = frame.headers.get("server", "")
        self.settled.set()

    def messages(self, frames: list[Frame]) -> None:
        """Hand over the frames that were read together."""
        read_ms = now_ms()
        self.is_handing_over = True
        self._inbox.put(
            *(Incoming("message", read_ms, headers.get("subscription", ""), headers, body) for headers, body in frames)
        )
        self.last_heard_s = time.monotonic()
        self.is_handing_over = False

    def on_heartbeat(self) -> None:
        self.last_heard_s = time.monotonic()

    def on_error(self, frame: stomp.utils.Frame) -> None:
        body = frame.body.decode("utf-8", "replace") if isinstance(frame.body, bytes) else frame.body
        said = frame.headers.get("message") or (body or "").strip().partition("\n")[0]
        if not self.settled.is_set():
            self.refusal = said or "the login was refused"
            self.settled.set()
            return
        self._inbox.put(Incoming("error", now_ms(), "", frame.headers, said))

    def on_disconnected(self) -> None:
        if not self.settled.is_set():
            self.refusal = self.refusal or self.ended_by or _CLOSED
            self.settled.set()
            return
        self._inbox.put(Incoming("disconnected", now_ms(), "", {}, self.ended_by))


class _Transport(stomp.transport.Transport):  # type: ignore[misc]  # stomp.py has no types
    """stomp.py's socket, with MESSAGE frames removed from its input."""

    def __init__(self, listener: _Listener, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._cutter = FrameCutter()
        self._listener = listener
        self._ending = threading.Lock()

    def receive(self) -> bytes:
        """Read once; return the input for stomp.py, a heartbeat if nothing is left for it, or nothing if the connection ended."""
        try:
            data: bytes = self.socket.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # stomp.py waits for more
        except (OSError, ValueError, AttributeError) as error:  # lost, or closed by another thread
            log.debug("reading failed: %s", error)
            data = b""
        try:
            messages, others = self._cutter.feed(data)
        except ValueError as error:
            self._listener.ended_by = f"what it sends cannot be read: {error}"
            data = b""
        if not data:
            self.shutdown_queue()
            return b""
        if messages:
            self._listener.messages(messages)
        return others or b"\n"

    def shutdown_queue(self) -> None:
        """Make the socket a blocking one, whichever thread does it first.

        From a TLS connection, whose socket is not, stomp.py would go on reading after its end, without a pause.
        """
        with self._ending:
            if not self.blocking:
                super().shutdown_queue()

    def hang_up(self) -> None:
        """Close the socket without waiting for the broker.

        Over TLS stomp.py would wait for the peer's close_notify, which a silent or disconnected broker never sends.
        """
        if self.socket is not None:
            with suppress(OSError):  # it is closed already
                self.socket.shutdown(socket.SHUT_RDWR)
        self.disconnect_socket()


class _Connection(stomp.connect.BaseConnection, stomp.protocol.Protocol12):  # type: ignore[misc]
    """STOMP 1.2 over a `_Transport`."""

    def __init__(self, transport: _Transport) -> None:
        stomp.connect.BaseConnection.__init__(self, transport)
        stomp.protocol.Protocol12.__init__(self, transport, (_HEARTBEAT_MS, _HEARTBEAT_MS), heart_beat_receive_scale=_NEVER)

    def connect(self, *arguments: Any, **named: Any) -> None:
        """Open the socket and send the login."""
        self.transport.start()
        stomp.protocol.Protocol12.connect(self, *arguments, **named)

    def disconnect(self, *arguments: Any, **named: Any) -> None:
        """Send DISCONNECT; its receipt closes the socket."""
        stomp.protocol.Protocol12.disconnect(self, *arguments, **named)


class Session:
    """A connection that has logged in. Created by `open_session`."""

    def __init__(self, connection: _Connection, listener: _Listener, address: Address, client_id: str) -> None:
        self._connection = connection
        self._listener = listener
        self.address = address
        self.client_id = client_id

    @property
    def server(self) -> str:
        """The broker's own name and version, such as `ActiveMQ/6.3.1`."""
        return self._listener.server or ""

    @property
    def version(self) -> tuple[int, ...] | None:
        """The broker's version, None when it does not report it or is not ActiveMQ Classic."""
        found = re.fullmatch(r"ActiveMQ/(\d+(?:\.\d+)*).*", self.server)
        return tuple(int(part) for part in found.group(1).split(".")) if found else None

    def silent_s(self) -> float:
        """Seconds since the last input from the broker."""
        return 0.0 if self._listener.is_handing_over else time.monotonic() - self._listener.last_heard_s

    def subscribe(self, destination: str, subscription: str, headers: Mapping[str, str], ack: str = "auto") -> None:
        """Subscribe; frames arrive in the inbox under the name `subscription`. Raises `BrokerUnavailable`."""
        self._do(lambda: self._connection.subscribe(destination, subscription, ack, dict(headers)))

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription. Raises `BrokerUnavailable`."""
        self._do(lambda: self._connection.unsubscribe(subscription))

    def send(self, destination: str, headers: Mapping[str, str], body: str = "") -> None:
        """Send one message. Raises `BrokerUnavailable`."""
        self._do(lambda: self._connection.send(destination, body, headers=dict(headers)))

    def ack(self, ack_id: str) -> None:
        """Acknowledge a message of a subscription that asks for it. Raises `BrokerUnavailable`."""
        self._do(lambda: self._connection.ack(ack_id))

    def close(self) -> None:
        """Disconnect, waiting at most two seconds for the answer. Never raises."""
        try:
            if self._connection.is_connected():
                self._connection.disconnect()
                until = time.monotonic() + 2
                while self._connection.is_connected() and time.monotonic() < until:
                    time.sleep(0.02)
            self._connection.transport.hang_up()
        except Exception as error:
            log.debug("closing %s: %s", self.address, error)

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # stomp.py raises its own, the socket's and TLS's errors
            raise BrokerUnavailable(str(self.address), f"connection lost: {error or 'closed'}") from error


def open_session(config: ActiveMQCollectorConfig, address: Address, inbox: Inbox) -> Session:
    """Connect to `address` and log in. Raises `BrokerUnavailable` with the reason and the remedy."""
    # The caller reports every failure, once and with its remedy.
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
    target = (address.host, address.port)
    listener = _Listener(inbox)
    transport = _Transport(
        listener,
        [target],
        prefer_localhost=False,
        try_loopback_connect=False,
        reconnect_attempts_max=1,
        reconnect_sleep_initial=0,
        timeout=config.connect_timeout_s,
        keepalive=True,
        vhost=config.virtual_host,
        auto_decode=False,
    )
    connection = _Connection(transport)
    if address.tls:
        _use_tls(connection, config, target)
    connection.set_listener("queuewatch", listener)
    try:
        password = config.password()
    except ValueError as error:
        raise BrokerUnavailable(str(address), str(error)) from error
    # Use a new client id every time: a broker refuses one that an earlier, half-dead connection still has.
    client_id = f"queuewatch-{uuid.uuid4().hex}"
    try:
        connection.connect(config.username, password, headers={"client-id": client_id})
    except Exception as error:
        raise unreachable(config, address) from error
    session = Session(connection, listener, address, client_id)
    if not listener.settled.wait(config.connect_timeout_s):
        session.close()
        raise BrokerUnavailable(
            str(address),
            f"connected, but no answer to the login within {config.connect_timeout_s:g} s",
            _NOT_STOMP,
        )
    if listener.refusal is not None:
        session.close()
        raise BrokerUnavailable(str(address), listener.refusal, _remedy(config, listener.refusal))
    return session


def _use_tls(connection: _Connection, config: ActiveMQCollectorConfig, target: tuple[str, int]) -> None:
    tls = config.tls
    connection.set_ssl(
        for_hosts=[target],
        ca_certs=None if tls.ca_file is None else str(tls.ca_file),
        cert_file=None if tls.certificate_file is None else str(tls.certificate_file),
        key_file=None if tls.key_file is None else str(tls.key_file),
        password=tls.key_password(),
        verify=tls.verify,
    )


def _remedy(config: ActiveMQCollectorConfig, refusal: str) -> str | None:
    if refusal == _CLOSED:
        # A broker that refuses a login says so; other connectors, such as OpenWire's, close the connection.
        return _NOT_STOMP
    if re.search(r"password|user ?name|authenticat|login", refusal, re.IGNORECASE):
        if config.username is None:
            return "the broker asks for a login: set username, and password_file or " + config.password_env
        return "check username and the password it is used with"
    return None
