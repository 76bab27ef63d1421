"""What a configuration names outside itself: files that must be there, and a summary for people."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from streaming.config.document import KeyPath, dotted_name
from streaming.config.errors import ConfigError, ConfigErrors
from streaming.config.model import Config


def check_files(config: Config) -> None:
    """Raises `ConfigErrors` naming every file that is configured to be read and cannot be."""
    errors = [error for key, path in _files(config, ()) if (error := _unreadable(key, path)) is not None]
    if errors:
        raise ConfigErrors(errors)


def summary(config: Config) -> Iterator[str]:
    """What the service would do, a line each."""
    source = config.source
    if source.kafka is not None:
        yield f"reads Kafka topics {', '.join(source.kafka.topics)} at {', '.join(source.kafka.bootstrap_servers)}"
    if source.spool is not None:
        yield f"reads files {source.spool.pattern} in {source.spool.folder}"
    if source.kafka is None and source.spool is None:
        yield "reads nothing: `queuewatch run` needs source.kafka or source.spool"
    yield f"runs on {config.spark.master} with {config.spark.shards} shards, checkpoint in {config.spark.checkpoint_dir}"
    yield f"serves http://{config.http.host}:{config.http.port}/"
    if config.queues:
        yield f"has thresholds of their own for queues like {', '.join(queue.pattern for queue in config.queues)}"
    kinds = [kind for kind in ("sqs", "activemq", "cloudflare") if getattr(config.collect, kind) is not None]
    if kinds:
        yield f"collects from {', '.join(kinds)}"


def warnings(config: Config) -> Iterator[str]:
    """What is allowed and hardly meant, with the remedy, a line each."""
    http = config.http
    if http.ingest.enabled and http.ingest.bearer_token() is None and not is_loopback(http.host):
        yield (
            f"whoever reaches {http.host}:{http.port} may send events: "
            "set http.ingest.token_file, or let http.host be 127.0.0.1 behind a proxy that asks for a login"
        )
    if http.tls.cert_file is None and not is_loopback(http.host):
        for name, auth in (("auth", http.auth), ("metrics_auth", http.metrics_auth)):
            if auth.username is not None or auth.token is not None or auth.token_file is not None:
                yield f"the credentials of http.{name} go over the network in clear: set http.tls, or put a TLS proxy in front"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _files(section: BaseModel, key: KeyPath) -> Iterator[tuple[KeyPath, Path]]:
    """Fields that end in `_file`, wherever they are."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Path) and name.endswith("_file"):
            yield (*key, name), value
        elif isinstance(value, BaseModel):
            yield from _files(value, (*key, name))
        elif isinstance(value, dict):
            for inner, below in value.items():
                if isinstance(below, BaseModel):
                    yield from _files(below, (*key, name, str(inner)))


def _unreadable(key: KeyPath, path: Path) -> ConfigError | None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return ConfigError(dotted_name(key), f"{path}: {error.strerror}", "Create the file, or name another one")
    return None
