"""Which kinds of collectors there are. Nothing of a kind is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, Final

from pydantic import BaseModel

from sources.collect.base import Collector

KINDS: Final[dict[str, str]] = {
    "sqs": "sources.sqs.collector:SqsCollector",
    "activemq": "sources.activemq.collector:ActiveMQCollector",
    "cloudflare": "sources.cloudflare.collector:CloudflareCollector",
    "sqs-telemetry": "sources.sqs.telemetry:SqsTelemetryCollector",
}
"""Kind → module:class."""

CONFIG_MODELS: Final[dict[str, str]] = {
    "sqs": "sources.sqs.config:SqsCollectorConfig",
    "activemq": "sources.activemq.config:ActiveMQCollectorConfig",
    "cloudflare": "sources.cloudflare.config:CloudflareCollectorConfig",
    "sqs-telemetry": "sources.sqs.config:SqsCollectorConfig",
}
"""Kind → module:model of its section."""

SECTIONS: Final[dict[str, str]] = {
    "sqs": "sqs",
    "activemq": "activemq",
    "cloudflare": "cloudflare",
    "sqs-telemetry": "sqs",
}
"""Kind → the section under `collect:` that configures it."""


def collector_class(kind: str) -> type[Collector]:
    """The class of a kind. Raises `ValueError` naming the nearest kind, or the extra that is not installed."""
    found: type[Collector] = _load(kind, KINDS)
    return found


def config_model(kind: str) -> type[BaseModel]:
    """The model of a kind's section. Raises `ValueError` as `collector_class` does."""
    found: type[BaseModel] = _load(kind, CONFIG_MODELS)
    return found


def _load(kind: str, table: dict[str, str]) -> Any:
    if kind not in table:
        near = difflib.get_close_matches(kind, table, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known kinds are {', '.join(table)}"
        raise ValueError(f"there is no collector {kind!r}; {hint}")
    module, name = table[kind].split(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the {kind} collector needs {error.name}, which is not installed; pip install queuewatch-service"
        ) from error
