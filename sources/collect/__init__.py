"""Collectors observe queues from outside and report what they see as events."""

from sources.collect.base import Collector, CollectorRefused, Emit, Event
from sources.collect.destination import Destination, DestinationStopped
from sources.collect.registry import KINDS, Kind, collector_class, config_model, kind_of
from sources.collect.runner import run_collector

__all__ = [
    "KINDS",
    "Collector",
    "CollectorRefused",
    "Destination",
    "DestinationStopped",
    "Emit",
    "Event",
    "Kind",
    "collector_class",
    "config_model",
    "kind_of",
    "run_collector",
]
