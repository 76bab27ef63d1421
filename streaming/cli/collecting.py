"""The implementation of `collect`: selects the collector and the destination of its events."""

from __future__ import annotations

import threading
from typing import Final

import structlog
from pydantic import BaseModel

from queuewatch.transports import Transport
from queuewatch.transports.kafka import KafkaTransport
from queuewatch.transports.spool import SpoolTransport
from sources.collect import CollectorRefused, collector_class, config_model, kind_of, run_collector
from streaming.cli.errors import UnusableConfig
from streaming.cli.signals import stopped_by_signals
from streaming.config.check import check_files_of, unread_variables
from streaming.config.errors import ConfigError
from streaming.config.logging import set_up_logging
from streaming.config.model import Config
from streaming.folder import local_folder

_log = structlog.get_logger(__name__)

_REFERENCE: Final = "as in deploy/queuewatch.yaml"
_FIRST_KEYS: Final = {
    "activemq": f"addresses: [stomp://HOST:61613], {_REFERENCE}",
    "cloudflare": f"account_id: ID, {_REFERENCE}",
}


def collect_until_stopped(config: Config, kind: str, to: str | None) -> None:
    """Run the collector of `kind` until a signal stops it. `to` is a URL as in `collect.to`.

    Raises `ConfigError` for an unknown kind or an invalid destination, `UnusableConfig` if the collector refuses to run.
    """
    set_up_logging(config.log)
    section = section_of(config, kind)
    destination = destination_of(config, to)
    for line in unread_variables(config):
        _log.warning("unread_variable", warning=line)
    stop = threading.Event()
    with stopped_by_signals(stop):
        _log.info("collecting", kind=kind, to=destination if isinstance(destination, str) else destination.name)
        try:
            delivered = run_collector(kind, section, destination, stop)
        except CollectorRefused as error:
            raise UnusableConfig(str(error)) from error
        except ValueError as error:
            raise ConfigError("--to" if to else "collect.to", str(error), "See `queuewatch collect --help`") from error
    _log.info("stopped", kind=kind, events_delivered=delivered)


def section_of(config: Config, kind: str) -> BaseModel:
    """Return the collector's section. Raises `ConfigError` for an unknown kind or a missing section.

    Only SQS works without a section: account and region then come from the AWS environment.
    """
    try:
        collector_class(kind)
        model = config_model(kind)
    except ValueError as error:
        raise ConfigError("", str(error), "See `queuewatch collect --help`") from error
    section = kind_of(kind).section
    found = config.section(f"collect.{section}")
    if isinstance(found, BaseModel):
        return found
    if section == "sqs":
        return model()
    raise ConfigError(
        f"collect.{section}",
        "the section is missing",
        f"Add it with what to collect from: {_FIRST_KEYS.get(section) or _keys_of(model)}",
    )


def _keys_of(model: type[BaseModel]) -> str:
    fields = model.model_fields.items()
    return ", ".join(f"{name} (required)" if field.is_required() else name for name, field in fields)


def destination_of(config: Config, to: str | None) -> str | Transport:
    """Return where the events go: `to`, else `collect.to`, else where the job reads. Raises `ConfigError`."""
    url = to or config.collect.to
    if url is not None:
        return url
    source = config.source
    if source.kafka is not None:
        check_files_of(source.kafka, "source.kafka")
        options = source.kafka.python_options()
        return KafkaTransport(options.pop("bootstrap_servers"), source.kafka.topics[0], **options)
    folder = local_folder(source.spool.folder) if source.spool is not None else None
    if folder is not None:
        return SpoolTransport(str(folder.path), durable=True)
    raise ConfigError(
        "collect.to", "no destination for events is configured", "Set it to kafka://host:9092/topic or spool:/folder"
    )
