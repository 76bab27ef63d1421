"""Collectors: look at queues from outside and tell what they see as events."""

from sources.collect.base import Collector, CollectorRefused
from sources.collect.destination import Destination, DestinationStopped
from sources.collect.registry import KINDS, SECTIONS, collector_class, config_model
from sources.collect.runner import run_collector

__all__ = [
    "KINDS",
    "SECTIONS",
    "Collector",
    "CollectorRefused",
    "Destination",
    "DestinationStopped",
    "collector_class",
    "config_model",
    "run_collector",
]
