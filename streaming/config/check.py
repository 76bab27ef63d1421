"""Checks beyond the schema: readable files, risky settings, and a summary for people."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from queuewatch.transports import open_transport
from streaming.config.document import KeyPath, dotted_name
from streaming.config.errors import ConfigError, ConfigErrors
from streaming.config.external_sections import COLLECTOR_SECTIONS
from streaming.config.model import Config
from streaming.config.other_variables import unread
from streaming.config.section import NOT_A_TOKEN, is_token
from streaming.config.service import QuarantineSection, SignalLogSection

T = TypeVar("T")

_LONGEST_SECRET: Final = 1 << 20
_CERTIFICATE_FIX: Final = "Configure a PEM certificate and its private key without a password"
_PUSHED: Final = {"info": "all signals", "warning": "warnings and critical signals", "critical": "critical signals"}
"""What `alertmanager.min_severity` lets through, in words."""


def check_files(config: Config) -> None:
    """Raise `ConfigErrors` for all configured files that cannot be read, and for secrets that are empty."""
    errors = list(_unreadable_files(config, ()))
    http = config.http
    readers = {"http.auth": http.auth.secrets, "http.metrics_auth": http.metrics_auth.secrets}
    for key, read in (readers | {"http.ingest": http.ingest.bearer_token}).items():
        try:
            read_secret(key, read)
        except ConfigError as error:
            if not isinstance(error.__cause__, OSError):  # an unreadable file is in the list already
                errors.append(error)
    if errors:
        raise ConfigErrors(errors)


def check_files_of(section: BaseModel, key: str) -> None:
    """Raise `ConfigErrors` for the files of the section `key` that cannot be read, and for its secrets that are empty."""
    if errors := list(_unreadable_files(section, (key,))):
        raise ConfigErrors(errors)


def check_http(config: Config) -> None:
    """Raise `ConfigError` if anyone could send events, or for an unusable certificate: `run` refuses to start with either."""
    http = config.http
    ingest = http.ingest
    open_to_all = ingest.enabled and not ingest.allow_without_token and not is_loopback(http.host)
    if open_to_all and read_secret("http.ingest", ingest.bearer_token) is None:
        raise ConfigError(
            "http.ingest",
            f"anyone who can reach {http.host}:{http.port} could send events",
            "Set http.ingest.token_file, or http.ingest.allow_without_token: true if only senders can reach the port",
        )
    if http.tls.cert_file is not None:
        _check_tls(http.tls.cert_file, http.tls.key_file)


def _check_tls(cert: Path, key: Path | None) -> None:
    if (reason := _unusable_certificate(cert, key)) is not None:
        raise ConfigError("http.tls", f"{cert} and {key} cannot be used ({reason})", _CERTIFICATE_FIX)


def _unusable_certificate(cert: Path, key: Path | None = None) -> str | None:
    """Return why TLS cannot use a certificate and its key, which by default is in the same file; None if it can."""
    try:
        # Without a function for the password, OpenSSL asks for that of an encrypted key on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def check_destination(config: Config) -> None:
    """Raise `ConfigError` if collectors cannot send to `collect.to`, whatever answers there."""
    if config.collect.to is not None:
        try:
            open_transport(config.collect.to)
        except ValueError as error:
            raise ConfigError("collect.to", str(error), "Correct it, or remove the key to send where `source` reads") from error


def read_secret(key: str, read: Callable[[], T]) -> T:
    """Return what `read` takes from the section `key`. Raises `ConfigError` if it cannot be read or is empty."""
    try:
        return read()
    except OSError as error:
        raise ConfigError(key, f"{error.filename}: {error.strerror}", "Create it, or configure another file") from error
    except ValueError as error:
        raise ConfigError(key, str(error), "Write the secret to it, or remove the key") from error


def summary(config: Config) -> Iterator[str]:
    """Return lines that describe what the service would do."""
    source = config.source
    if source.kafka is not None:
        yield f"reads Kafka topics {', '.join(source.kafka.topics)} at {', '.join(source.kafka.bootstrap_servers)}"
    if source.spool is not None:
        yield f"reads files {source.spool.pattern} in {source.spool.folder}"
    if source.kafka is None and source.spool is None:
        yield "reads nothing: `queuewatch run` needs source.kafka or source.spool"
    yield f"runs on {config.spark.master} with {config.spark.shards} shards, checkpoint in {config.spark.checkpoint_dir}"
    scheme = "http" if config.http.tls.cert_file is None else "https"
    yield f"serves {scheme}://{config.http.host}:{config.http.port}/"
    ingest = config.http.ingest
    if ingest.enabled:
        has_token = ingest.token is not None or ingest.token_file is not None
        yield f"accepts events at /api/v1/events {'from senders with a token' if has_token else 'from everybody who reaches it'}"
    yield (
        f"lists up to {config.judge.messages_per_queue} messages of a kind and names up to {config.judge.top_k} groups and "
        "consumers per queue"
    )
    logged, kept = _places(config.signal_log), _places(config.quarantine)
    yield f"logs signals to {logged}" if logged else "keeps no signal log: set signal_log.path"
    yield f"keeps unreadable events in {kept}" if kept else "keeps no unreadable events: set quarantine.path"
    if (push := config.section("alertmanager")) is not None:
        # A URL may hold a user and a password.
        urls = ", ".join(re.sub(r"//[^/]*@", "//", destination.url) for destination in push.destinations)
        yield f"pushes {_PUSHED[push.min_severity]} to Alertmanager at {urls}"
    if config.queues:
        yield f"uses separate settings for queues matching {', '.join(queue.pattern for queue in config.queues)}"
    kinds = [kind for kind in COLLECTOR_SECTIONS if config.section(f"collect.{kind}") is not None]
    if kinds:
        yield f"collects from {', '.join(kinds)}"


def _places(section: SignalLogSection | QuarantineSection) -> str:
    """Return the file and the topic that records are written to, as words; nothing if there are none."""
    file = [] if section.path is None else [str(section.path)]
    topic = [] if section.kafka is None else [f"Kafka topic {section.kafka.topic}"]
    return " and ".join(file + topic)


def warnings(config: Config) -> Iterator[str]:
    """Return warnings about settings that are allowed but probably not intended, with the fix."""
    http = config.http
    if http.ingest.enabled and http.ingest.bearer_token() is None and not is_loopback(http.host):
        yield (
            f"anyone who can reach {http.host}:{http.port} can send events: "
            "set http.ingest.token_file, or set http.host to 127.0.0.1 behind a proxy that requires a login"
        )
    if http.tls.cert_file is None and not is_loopback(http.host):
        for name, auth in (("auth", http.auth), ("metrics_auth", http.metrics_auth)):
            if auth.username is not None or auth.token is not None or auth.token_file is not None:
                yield f"the credentials of http.{name} are sent unencrypted: set http.tls, or put a TLS proxy in front"
    spool = config.source.spool
    if spool is not None and spool.after_reading == "keep":
        yield (
            f"files that were read stay in {spool.folder}, and applications and collectors stop writing once it holds 1 GiB: "
            "set source.spool.after_reading to delete or archive, or remove old files regularly"
        )
    if http.metrics_left_out:
        yield from _alerts_that_need(http.metrics_left_out, config)


def _alerts_that_need(left_out: Collection[str], config: Config) -> Iterator[str]:
    from alerts.config import AlertRulesConfig
    from alerts.prometheus_rules import enabled, silenced_by

    for entry in enabled(config.section("alerts") or AlertRulesConfig()):
        for metric in sorted(silenced_by(entry).intersection(left_out)):
            yield (
                f"{entry.alert_name} fires wrongly without {metric}: remove it from http.metrics_left_out, "
                f"or set alerts.rules.{entry.name}.enabled to false"
            )


def unread_variables(config: Config, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Return warnings about variables of `env` (None: the process') that look like settings and that nothing reads."""
    yield from unread(os.environ if env is None else env, config.model_dump(), Config)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a service that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unreadable_files(section: BaseModel, key: KeyPath) -> Iterator[ConfigError]:
    for file, path in _files(section, key):
        if (error := _unreadable(file, path)) is not None:
            yield error


def _files(section: BaseModel, key: KeyPath) -> Iterator[tuple[KeyPath, Path]]:
    """Return all fields whose name ends in `_file`, at any depth."""
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
        elif isinstance(value, tuple):
            for i, below in enumerate(value):
                if isinstance(below, BaseModel):
                    yield from _files(below, (*key, name, i))


def _unreadable(key: KeyPath, path: Path) -> ConfigError | None:
    # The secrets of `http` have a check of their own.
    is_secret = str(key[-1]).endswith(("token_file", "password_file")) and key[0] != "http"
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_SECRET if is_secret else 1)
    except OSError as error:
        return ConfigError(dotted_name(key), f"{path}: {error.strerror}", "Create the file, or configure another one")
    if key[-1] == "ssl_certificate_file" and (reason := _unusable_certificate(path)) is not None:
        return ConfigError(dotted_name(key), f"{path} cannot be used ({reason})", _CERTIFICATE_FIX)
    if not is_secret:
        return None
    problem = _unusable(content, is_bearer=str(key[-1]).endswith("token_file"))
    return ConfigError(dotted_name(key), f"{path} {problem}", "Write the secret to it, or remove the key") if problem else None


def _unusable(secret: bytes, *, is_bearer: bool) -> str:
    """Return what is wrong with the content of a secret's file, without quoting it; nothing if it can be used."""
    try:
        text = secret.decode("utf-8").strip()
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    if not text:
        return "is empty"
    return NOT_A_TOKEN if is_bearer and not is_token(text) else ""
