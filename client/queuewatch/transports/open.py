"""Creates the transport for a URL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from queuewatch.transports.base import Transport
from queuewatch.transports.http import HttpTransport
from queuewatch.transports.kafka import KafkaTransport
from queuewatch.transports.secrets import shown
from queuewatch.transports.spool import SpoolTransport
from queuewatch.transports.sqs import SqsTransport
from queuewatch.transports.urls import check_port, split_url

_FORMS = "kafka://host:9092[,host:9092]/topic, spool:/folder, http(s)://host:9400/api/v1/events or sqs:<queue name or URL>"


def open_transport(to: str, *, durable: bool = False, default_region: str | None = None) -> Transport:
    """Return the transport for a URL; nothing is connected or created yet.

    Forms: `kafka://host:9092[,host…]/topic[?security_protocol=SASL_SSL&sasl_mechanism=…&compression_type=…]`,
    `spool:/folder[?max_file_bytes=…&max_age_s=…&max_folder_bytes=…]`, `http(s)://host:9400/api/v1/events`, `sqs:<queue name or
    URL>[?region=…]`. With `durable`, sent events survive a crash of the machine, even if that costs time. `default_region` is
    that of an SQS queue if nothing else names one.

    Raises `ValueError`, which names the invalid part.
    """
    scheme, separator, rest = to.partition(":")
    if not separator or not rest:
        raise ValueError(f"{shown(to)!r} is not a telemetry destination; use {_FORMS}")
    if scheme in ("http", "https"):
        return HttpTransport(to)
    if scheme == "kafka":
        return _kafka(to)
    path, options = _options(to, rest)
    if scheme == "spool":
        known = {"max_file_bytes": int, "max_age_s": float, "max_folder_bytes": int}
        return SpoolTransport(path.removeprefix("//"), durable=durable, **_convert(to, options, known))
    if scheme == "sqs":
        return SqsTransport(path.removeprefix("//"), default_region=default_region, **_convert(to, options, {"region": str}))
    raise ValueError(f"{shown(to)!r}: {shown(scheme)!r} is not a telemetry transport; use {_FORMS}")


def _kafka(to: str) -> KafkaTransport:
    parts = split_url(to)
    if "@" in parts.netloc + parts.path:
        raise ValueError(
            "a Kafka password does not belong in the URL; set QUEUEWATCH_KAFKA_USERNAME and "
            "QUEUEWATCH_KAFKA_PASSWORD (or QUEUEWATCH_KAFKA_PASSWORD_FILE)"
        )
    topic = parts.path.strip("/")
    if not parts.netloc or not topic or "/" in topic:
        raise ValueError(f"{shown(to)!r} names no broker or no topic; use kafka://host:9092/topic")
    brokers = parts.netloc.split(",")
    for broker in brokers:
        check_port(broker, split_url(f"//{broker}"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = dict.fromkeys(KafkaTransport.OPTIONS, str)
    return KafkaTransport(brokers, topic, **_convert(to, options, known))


def _options(to: str, rest: str) -> tuple[str, dict[str, str]]:
    path, _, query = rest.partition("?")
    if not path.strip("/"):
        raise ValueError(f"{shown(to)!r} names no queue or folder; use {_FORMS}")
    return path, dict(parse_qsl(query, keep_blank_values=True))


def _convert(to: str, options: dict[str, str], known: Mapping[str, type]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for name, text in options.items():
        if name not in known:
            raise ValueError(f"{shown(to)!r}: unknown option {name!r}; known are {', '.join(known)}")
        try:
            value = converted[name] = known[name](text)
        except ValueError:
            raise ValueError(f"{shown(to)!r}: {name}={text!r} is not a number") from None
        if not isinstance(value, str) and not 0 <= value < math.inf:
            raise ValueError(f"{shown(to)!r}: {name}={text!r} must be finite and not negative")
    return converted
