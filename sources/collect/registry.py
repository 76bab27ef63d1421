"""The kinds of collectors. The modules of a kind are imported on first use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from pydantic import BaseModel

from sources.collect.base import Collector

Loaded = TypeVar("Loaded")


class Kind(NamedTuple):
    """The parts of a kind of collector, each imported on first use."""

    section: str
    """The section under `collect:` that configures it."""
    config: Callable[[], type[BaseModel]]
    """The model of that section."""
    collector: Callable[[], type[Collector]]


def _sqs_config() -> type[BaseModel]:
    from sources.sqs.config import SqsCollectorConfig

    return SqsCollectorConfig


def _sqs() -> type[Collector]:
    from sources.sqs.collector import SqsCollector

    return SqsCollector


def _sqs_telemetry() -> type[Collector]:
    from sources.sqs.telemetry import SqsTelemetryCollector

    return SqsTelemetryCollector


def _activemq_config() -> type[BaseModel]:
    from sources.activemq.config import ActiveMQCollectorConfig

    return ActiveMQCollectorConfig


def _activemq() -> type[Collector]:
    from sources.activemq.collector import ActiveMQCollector

    return ActiveMQCollector


def _cloudflare_config() -> type[BaseModel]:
    from sources.cloudflare.config import CloudflareCollectorConfig

    return CloudflareCollectorConfig


def _cloudflare() -> type[Collector]:
    from sources.cloudflare.collector import CloudflareCollector

    return CloudflareCollector


KINDS: Final[dict[str, Kind]] = {
    "sqs": Kind("sqs", _sqs_config, _sqs),
    "activemq": Kind("activemq", _activemq_config, _activemq),
    "cloudflare": Kind("cloudflare", _cloudflare_config, _cloudflare),
    "sqs-telemetry": Kind("sqs", _sqs_config, _sqs_telemetry),
}


def kind_of(name: str) -> Kind:
    """Return the kind of that name. Raises `ValueError` naming the nearest one."""
    if name not in KINDS:
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known kinds are {', '.join(KINDS)}"
        raise ValueError(f"there is no collector {name!r}; {hint}")
    return KINDS[name]


def collector_class(kind: str) -> type[Collector]:
    """Return the class of a kind. Raises `ValueError` naming the nearest kind, or the module that is not installed."""
    return _loaded(kind, kind_of(kind).collector)


def config_model(kind: str) -> type[BaseModel]:
    """Return the model of a kind's section. Raises `ValueError` like `collector_class`."""
    return _loaded(kind, kind_of(kind).config)


def _loaded(kind: str, load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the {kind} collector needs {error.name}, which is not installed; pip install queuewatch-service"
        ) from error
