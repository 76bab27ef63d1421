"""How to reach an ActiveMQ Classic broker, and what of it to watch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Seconds = Annotated[float, Field(gt=0)]
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
        return f"{_TLS if self.tls else _PLAIN}://{self.host}:{self.port}"


class TlsConfig(BaseModel):
    """Used for `stomp+ssl` addresses. Files are PEM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca_file: Path | None = None
    """Authorities to trust instead of the system's."""
    certificate_file: Path | None = None
    """This client's certificate, when the broker asks for one."""
    key_file: Path | None = None
    """Its key; None when it is in `certificate_file`."""
    key_password_env: str | None = None
    """The environment variable with the key's password."""
    verify: bool = True
    """False accepts any certificate: for tests only."""

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file needs certificate_file")
        return self


class ActiveMQCollectorConfig(BaseModel):
    """The collector for ActiveMQ Classic. Queue patterns are the broker's: `*` is one element, `>` the
    rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    addresses: tuple[str, ...] = ("stomp://localhost:61613",)
    """STOMP connectors of one broker or of a master and its slaves, tried in turn: `stomp://` or
    `stomp+ssl://`."""
    username: str | None = None
    password_file: Path | None = None
    """A file that holds the password and nothing else but a line end."""
    password_env: str = "QUEUEWATCH_ACTIVEMQ_PASSWORD"
    """The environment variable with the password, used when there is a `username` and no `password_file`."""
    tls: TlsConfig = TlsConfig()
    virtual_host: str | None = None
    """The STOMP `host` header, when it is not the host of the address."""
    broker_name: str | None = None
    """`scope` of the events; by default the name the broker gives itself."""
    name: str | None = None
    """Who sends the heartbeats; by default `activemq:` and the broker's name."""

    queues: tuple[str, ...] = Field(default=(">",), min_length=1, max_length=50)
    """Which queues to watch; the broker sends nothing of the others."""
    exclude: tuple[str, ...] = ()
    """Which of them to leave out."""
    dead_letter_queues: tuple[str, ...] = ("ActiveMQ.DLQ", "DLQ.>", "*.DLQ")
    """Names of dead-letter queues; those the broker moves something to are recognised anyway."""
    ordered_queues: tuple[str, ...] = ()
    """Queues whose messages have groups, though not all of them: others are recognised by their first
    message."""

    statistics_interval_s: Seconds = 10.0
    """How often the broker's own counts are asked for."""
    oldest_message: bool = True
    """Ask for the time of each queue's first message too; the broker looks it up by browsing one message."""
    slow_consumer_advisories: bool = True
    """Listen to `SlowConsumer`; a busy consumer with a small prefetch causes one per message."""
    settle_grace_s: Seconds = 2.0
    """How long an acknowledgement waits for a contradiction before it is told."""
    heartbeat_interval_s: Seconds = 10.0
    probe_queue: str | None = "queuewatch.probe"
    """At start one message goes through this queue to see which advisories the broker sends; None: do not."""

    reconnect_first_s: Seconds = 0.5
    """Wait before the second attempt; it doubles from one attempt to the next, with jitter."""
    reconnect_most_s: Seconds = 60.0
    connect_timeout_s: Seconds = 10.0
    silence_timeout_s: Seconds = 60.0
    """A connection that brings nothing for this long, not even a heartbeat, is given up."""
    max_waiting_advisories: Count = 50_000
    """How many read advisories may wait here; beyond that the broker keeps them."""
    max_tracked_messages: Count = 500_000
    """How many messages in flight are remembered."""

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
    parts = urlsplit(address)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{address!r} is not a STOMP address: write stomp://host:port or stomp+ssl://host:port")
    if parts.username or parts.password or parts.path.strip("/") or parts.query:
        raise ValueError(
            f"an address is scheme, host and port only; {parts.hostname} has more: give username and password_file for a login"
        )
    try:
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except ValueError as error:
        raise ValueError(f"{address!r}: the port is not a number from 1 to 65535") from error
    return Address(parts.hostname, port, parts.scheme == _TLS)


def matches(pattern: str, queue: str) -> bool:
    """Whether a queue's name fits a pattern of the broker's kind: `*` is one element, a last `>` any number
    of them."""
    wanted, given = pattern.split("."), queue.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


def _any(patterns: tuple[str, ...], queue: str) -> bool:
    return any(matches(pattern, queue) for pattern in patterns)
