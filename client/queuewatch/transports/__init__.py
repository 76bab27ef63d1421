"""Transports for telemetry: Kafka, a spool folder, HTTP, SQS."""

from queuewatch.transports.base import SendError, Transport
from queuewatch.transports.open import open_transport

__all__ = ["SendError", "Transport", "open_transport"]
