"""The kinds of collectors: built in, or from an installed package. The modules of a kind are imported on first use."""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple, TypeVar

from pydantic import BaseModel

from sources.collect.base import Collector

_log = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")

ENTRY_POINTS: Final = "queuewatch.collectors"
"""The group of entry points by which other packages add kinds: the kind's name, which is also that of its section, and the
collector's class, whose `config_model` is the model of that section."""

ELSEWHERE: Final = "a collector of another package is known where that package is installed"
"""The hint for a name that is like none of the kinds."""


class Kind(NamedTuple):
    """The parts of a kind of collector, each imported on first use."""

    section: str
    """The section under `collect:` that configures it."""
    config: Callable[[], type[BaseModel]]
    """The model of that section."""
    collector: Callable[[], type[Collector]]
    package: str = "queuewatch-service"
    """The distribution that it comes with."""


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


_BUILT_IN: Final[dict[str, Kind]] = {
    "sqs": Kind("sqs", _sqs_config, _sqs),
    "activemq": Kind("activemq", _activemq_config, _activemq),
    "cloudflare": Kind("cloudflare", _cloudflare_config, _cloudflare),
    "sqs-telemetry": Kind("sqs", _sqs_config, _sqs_telemetry),
}


def _installed() -> Iterator[tuple[str, Kind]]:
    for point in entry_points(group=ENTRY_POINTS):
        package = point.dist.name if point.dist is not None else point.module
        if point.name in _BUILT_IN or point.name == "to":
            _log.warning("the collector %r of %s is left out: the name is taken", point.name, package)
        else:
            yield point.name, Kind(point.name, functools.partial(_config_of, point), point.load, package)


def _config_of(point: EntryPoint) -> type[BaseModel]:
    model = getattr(point.load(), "config_model", None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model
    raise AttributeError(f"{point.value} has no `config_model`, the pydantic model of its section")


KINDS: Final[dict[str, Kind]] = _BUILT_IN | dict(_installed())


def kind_of(name: str) -> Kind:
    """Return the kind of that name. Raises `ValueError` naming the nearest one."""
    if name not in KINDS:
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known kinds are {', '.join(KINDS)}; {ELSEWHERE}"
        raise ValueError(f"there is no collector {name!r} ({hint})")
    return KINDS[name]


def collector_class(kind: str) -> type[Collector]:
    """Return the class of a kind. Raises `ValueError` naming the nearest kind, or the module that is not installed."""
    return _loaded(kind, kind_of(kind).collector)


def config_model(kind: str) -> type[BaseModel]:
    """Return the model of a kind's section. Raises `ValueError` like `collector_class`."""
    return _loaded(kind, kind_of(kind).config)


def _loaded(kind: str, load: Callable[[], Loaded]) -> Loaded:
    package = kind_of(kind).package
    try:
        return load()
    except ModuleNotFoundError as error:
        raise ValueError(f"the {kind} collector needs {error.name}, which is not installed; pip install {package}") from error
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the {kind} collector of {package} cannot be loaded: {error}") from error
