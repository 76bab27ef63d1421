"""How to reach an ActiveMQ Classic broker, and what of it to watch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from sources.section import CollectorSection, Seconds

Count = Annotated[int, Field(ge=1)]

_PLAIN, _TLS = "stomp", "stomp+ssl"
_DEFAULT_PORTS = {_PLAIN: 61613, _TLS: 61614}


@dataclass(frozen=True, slots=True)
class Address:
    """One STOMP connector of one broker."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TLS if self.tls else _PLAIN}://{host}:{self.port}"


class TlsConfig(CollectorSection):
    """TLS settings for `stomp+ssl` addresses. All files are PEM."""

    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    certificate_file: Path | None = None
    """This client's certificate, if the broker requires one."""
    key_file: Path | None = None
    """The private key of that certificate; null if `certificate_file` contains it."""
    key_password_env: str | None = None
    """The environment variable that holds the key's password."""
    verify: bool = True
    """`false` accepts any certificate: for tests only."""

    def key_password(self) -> str:
        """The password of the private key; empty if there is none: given none at all, OpenSSL asks at the terminal, and waits."""
        return os.environ.get(self.key_password_env, "") if self.key_password_env else ""

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file needs certificate_file")
        return self


class ActiveMQCollectorConfig(CollectorSection):
    """The collector for ActiveMQ Classic. Queue patterns are the broker's: `*` is one element, `>` the rest."""

    addresses: tuple[str, ...] = ("stomp://localhost:61613",)
    """STOMP connectors (`stomp://` or `stomp+ssl://`) of one broker, or of a master and its slaves; tried in turn."""
    username: str | None = None
    password_file: Path | None = None
    """A file that contains only the password; a line end is ignored."""
    password_env: str = "QUEUEWATCH_ACTIVEMQ_PASSWORD"
    """The environment variable that holds the password; used if `username` is set and `password_file` is not."""
    tls: TlsConfig = TlsConfig()
    virtual_host: str | None = None
    """The STOMP `host` header, if it differs from the host of the address."""
    broker_name: str | None = None
    """`scope` of the events; by default the name of the connected broker. Set it if a master and its slaves differ in name."""
    name: str | None = None
    """Name of the collector in heartbeats; by default `activemq:` and the broker's name."""

    queues: tuple[str, ...] = Field(default=(">",), min_length=1, max_length=50)
    """Queues to watch; the broker sends no advisories about others."""
    exclude: tuple[str, ...] = ()
    """Queues to leave out."""
    dead_letter_queues: tuple[str, ...] = ("ActiveMQ.DLQ", "DLQ.>", "*.DLQ")
    """Names of dead-letter queues; a queue that the broker moves messages to is recognised without this."""
    ordered_queues: tuple[str, ...] = ()
    """Queues in which only some messages have a group. A queue that is not listed is ordered from its first such message on."""

    statistics_interval_s: Seconds = 10.0
    """Interval between queries for the broker's own counts."""
    oldest_message: bool = True
    """Also query the time of each queue's first message; the broker browses one message to find it."""
    slow_consumer_advisories: bool = True
    """Subscribe to `SlowConsumer` advisories; a busy consumer with a small prefetch causes one per message."""
    settle_grace_s: Seconds = 2.0
    """How long to wait for an advisory that contradicts an acknowledgement before reporting it."""
    heartbeat_interval_s: Seconds = 10.0
    probe_queue: str | None = "queuewatch.probe"
    """At start, one message is sent through this queue to see which advisories the broker sends; null: no probe."""

    reconnect_first_s: Seconds = 0.5
    """Pause before the second attempt to connect; doubled after each attempt up to `reconnect_most_s`, with jitter."""
    reconnect_most_s: Seconds = 60.0
    connect_timeout_s: Seconds = 10.0
    silence_timeout_s: Seconds = 60.0
    """Close a connection on which nothing arrives for this long, not even a heartbeat."""
    max_waiting_advisories: Count = 50_000
    """Maximum number of advisories waiting in the collector; further ones stay in the broker."""
    max_tracked_messages: Count = 500_000
    """Maximum number of messages in flight that are remembered."""

    @field_validator("addresses")
    @classmethod
    def _addresses_are_stomp(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        if not addresses:
            raise ValueError("name at least one address, such as stomp://localhost:61613")
        for address in addresses:
            parse_address(address)
        return addresses

    @field_validator("queues", "exclude", "dead_letter_queues", "ordered_queues")
    @classmethod
    def _patterns_are_names(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern or "," in pattern or "://" in pattern:
                raise ValueError(f"{pattern!r} is not a queue pattern: write one name, with * or > as wildcards")
            if ">" in pattern.split(".")[:-1]:
                raise ValueError(f"{pattern!r}: > stands for the rest of a name and can only come last")
        return patterns

    def parsed_addresses(self) -> list[Address]:
        """The addresses in the order they are tried."""
        return [parse_address(address) for address in self.addresses]

    def password(self) -> str | None:
        """The password from its file or environment variable; None without a user name.

        Raises `ValueError` naming the file that cannot be read.
        """
        if self.username is None:
            return None
        if self.password_file is None:
            return os.environ.get(self.password_env)
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ValueError(f"password_file {self.password_file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"password_file {self.password_file}: it is not UTF-8 text") from error

    def is_watched(self, queue: str) -> bool:
        """Whether events of the queue are wanted. Temporary queues, whose names are ids, never are."""
        if queue.startswith("ID:") or queue == self.probe_queue:
            return False
        return _any(self.queues, queue) and not _any(self.exclude, queue)

    def is_dead_letter_queue(self, queue: str) -> bool:
        """Whether the name says so."""
        return _any(self.dead_letter_queues, queue)

    def is_ordered(self, queue: str) -> bool:
        """Whether configuration says so."""
        return _any(self.ordered_queues, queue)


def parse_address(address: str) -> Address:
    """`stomp://host:port` or `stomp+ssl://host:port`. Raises `ValueError`."""
    if "@" in address:  # it may hold a password, and is not repeated
        raise ValueError("an address is scheme, host and port only: give username and password_file for a login")
    parts = urlsplit(address)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{address!r} is not a STOMP address: write stomp://host:port or stomp+ssl://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"an address is scheme, host and port only, and {address!r} has more")
    try:
        port = _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"{address!r}: the port is not a number from 1 to 65535")
    return Address(parts.hostname, port, parts.scheme == _TLS)


def matches(pattern: str, queue: str) -> bool:
    """Whether a queue's name fits a pattern of the broker's kind: `*` is one element, a last `>` is any number."""
    wanted, given = pattern.split("."), queue.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


def _any(patterns: tuple[str, ...], queue: str) -> bool:
    return any(matches(pattern, queue) for pattern in patterns)
