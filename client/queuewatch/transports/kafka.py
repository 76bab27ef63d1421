"""Telemetry to a Kafka topic, with many events per record."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

from queuewatch.quiet import quiet
from queuewatch.transports.base import SENDER_THREAD, SendError, Transport
from queuewatch.transports.secrets import PASSWORD_VARIABLE, USERNAME_VARIABLE, secret

_RECORD_OVERHEAD_BYTES = 1_000


class KafkaTransport(Transport):
    """Sends one record per payload with kafka-python and waits until all in-sync replicas have it."""

    OPTIONS: ClassVar[tuple[str, ...]] = (
        "security_protocol",
        "sasl_mechanism",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_keyfile",
        "compression_type",
        "client_id",
    )

    def __init__(self, brokers: Sequence[str], topic: str, *, timeout_s: float = 10.0, **options: object) -> None:
        self.name = f"kafka://{','.join(brokers)}/{topic}"
        self.max_bytes = 1_048_576 - _RECORD_OVERHEAD_BYTES  # a broker's default message.max.bytes
        self._brokers = list(brokers)
        self._topic = topic
        self._timeout_s = timeout_s
        self._options: dict[str, Any] = {"client_id": SENDER_THREAD, **options}
        self._producer: Any = None

    def prepare(self) -> None:
        with warnings.catch_warnings():  # the library's own warnings, which an application may have turned into errors
            warnings.simplefilter("ignore")
            _producer_class()
        client_id = self._options["client_id"]
        quiet("kafka", SENDER_THREAD, f"{client_id}-network-thread", f"kafka-io-{client_id}")

    def send(self, payload: bytes) -> None:
        producer = self._connected()
        from kafka import errors

        try:
            producer.send(self._topic, payload).get(timeout=self._timeout_s)
        except (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError) as error:
            raise SendError(f"{self.name}: the record is too large", retry=False, too_large=True) from error
        except (errors.KafkaError, AssertionError, OSError) as error:
            # A producer without a broker opens sockets at each attempt and leaves them to the garbage collector, so drop it until
            # the broker is back.
            self._close(timeout_s=0.5)
            # Retry everything except a too large record: a topic may be created, a right granted, a broker come back.
            raise SendError(f"{self.name}: {self._explain(error)}", retry=True) from error

    def close(self) -> None:
        self._close(self._timeout_s)

    def after_fork(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # Its threads and locks belong to the parent, and the connection is shared, so none of its code may run here, now or
            # at the child's exit.
            with contextlib.suppress(Exception):
                producer._closed = True
                producer._unregister_cleanup()
            _left_to_the_parent.append(producer)

    def _close(self, timeout_s: float) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):  # nothing is in flight, because each send waits for its response
                producer.close(timeout=timeout_s)

    def _connected(self) -> Any:
        if self._producer is None:
            try:
                made = _producer_class()
            except ImportError as error:
                raise SendError("kafka-python is not installed; pip install 'kafka-python>=2.2'", retry=True) from error
            self._producer = self._connect(made)
        return self._producer

    def _check_that_one_listens(self) -> None:
        for broker in self._brokers:
            try:
                socket.create_connection(_address(broker), timeout=min(3.0, self._timeout_s)).close()
            except OSError:
                continue
            return
        raise SendError(f"{self.name}: no broker listens there; check the address", retry=True)

    def _check_certificates(self) -> None:
        """Raise `SendError` for certificates that cannot be used, which kafka-python reports as a broker that is down."""
        if not str(self._options.get("security_protocol", "")).endswith("SSL"):
            return
        trusted = self._options.get("ssl_cafile")
        if trusted is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(trusted)
            except (OSError, ValueError) as error:
                raise SendError(
                    f"{self.name}: {trusted} cannot be used ({error}); ssl_cafile must be PEM certificates to trust", retry=True
                ) from error
        certificate, key = self._options.get("ssl_certfile"), self._options.get("ssl_keyfile")
        if certificate is None:
            return
        password = self._options.get("ssl_password", "")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password)
        except (OSError, ValueError) as error:
            raise SendError(
                f"{self.name}: {certificate} cannot be used ({error}); ssl_keyfile must be its private key, without a password",
                retry=True,
            ) from error

    def _connect(self, producer: Any) -> Any:
        self._check_that_one_listens()
        self._check_certificates()
        login = self._login()
        made: list[Any] = []

        def client(**config: Any) -> Any:
            made.append(producer.DEFAULT_CONFIG["kafka_client"](**config))
            return made[-1]

        settings = {
            "bootstrap_servers": self._brokers,
            "acks": "all",
            "enable_idempotence": False,  # duplicates are harmless, and some clusters forbid it
            "max_block_ms": int(self._timeout_s * 1000),
            "delivery_timeout_ms": int(self._timeout_s * 1000),
            "request_timeout_ms": int(self._timeout_s * 500),
            "bootstrap_timeout_ms": int(self._timeout_s * 1000),
            "max_request_size": 2 * self.max_bytes,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            # Given none at all, OpenSSL asks for that of an encrypted key at the terminal, and waits.
            "ssl_password": "",
            "kafka_client": client,
            # That of this moment: the library's default is that of its import, and after gevent or eventlet have replaced the
            # class, waiting with it would stop the application, whose thread runs the library's green thread.
            "selector": selectors.DefaultSelector,
        }
        # Older releases of kafka-python know fewer settings.
        known = {name: value for name, value in settings.items() if name in producer.DEFAULT_CONFIG}
        try:
            return producer(**known, **(login | self._options))
        except SendError:
            raise
        except Exception as error:
            # A producer that cannot connect leaves its sockets open, more of them at each attempt.
            for left in made:
                with contextlib.suppress(Exception):
                    left.close()
            # Whatever the cause (no broker, bad option, TLS), the sender reports it and tries again.
            raise SendError(f"{self.name}: {self._explain(error)}", retry=True) from error

    def _login(self) -> dict[str, str]:
        """Return user and password of the environment. Raises `SendError` if the destination needs them and they are not set."""
        found = {"sasl_plain_username": secret(USERNAME_VARIABLE), "sasl_plain_password": secret(PASSWORD_VARIABLE)}
        login = {name: value for name, value in found.items() if value is not None}
        if self._has_password() and not (login | self._options).keys() >= found.keys():
            mechanism = self._options["sasl_mechanism"]
            raise SendError(f"{self.name}: {mechanism} needs {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}; set both", retry=True)
        return login

    def _has_password(self) -> bool:
        protocol, mechanism = (str(self._options.get(name, "")) for name in ("security_protocol", "sasl_mechanism"))
        return protocol.startswith("SASL_") and mechanism.startswith(("PLAIN", "SCRAM-"))

    def _explain(self, error: BaseException) -> str:
        kind = type(error).__name__
        if kind == "NoBrokersAvailable" or "bootstrap" in str(error):
            # A broker that refuses a login closes the connection, and kafka-python reports only that none answers.
            settings = (
                "the address, security_protocol, user and password"
                if self._has_password()
                else "the address and security_protocol"
            )
            return f"no broker answers; check {settings}"
        if kind in ("UnknownTopicOrPartitionError", "KafkaTimeoutError"):
            return f"{kind}: is the topic {self._topic!r} there and the broker up? ({error})"
        return f"{kind}: {error}"


_left_to_the_parent: Final[list[Any]] = []


@lru_cache(maxsize=1)
def _producer_class() -> Any:
    """Return kafka-python's producer class without its `__del__`. Raises `ImportError`.

    `__del__` closes the producer, waits for threads that a forked child does not have, and turns the library's logger off
    for the whole process.
    """
    from kafka import KafkaProducer

    return type("TelemetryProducer", (KafkaProducer,), {"__del__": lambda _self: None})


def _address(broker: str) -> tuple[str, int]:
    """Parse `host:9092`, `host` or `[::1]:9092` into host and port."""
    host, separator, port = broker.rpartition(":")
    if not separator or not port.isdigit():
        host, port = broker, "9092"
    return host.strip("[]"), int(port)
