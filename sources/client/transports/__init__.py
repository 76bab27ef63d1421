"""Ways out for telemetry: Kafka, a spool folder, HTTP, SQS."""

from sources.client.transports.base import SendError, Transport
from sources.client.transports.open import open_transport

__all__ = ["SendError", "Transport", "open_transport"]
