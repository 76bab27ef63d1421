"""Instrumentation of applications: `watch` a boto3 client or session to report its SQS calls as telemetry.

import boto3
from queuewatch import watch

sqs = boto3.client("sqs")
watch(sqs, to="kafka://broker:9092/queuewatch-events")
"""

from queuewatch.sharing import flush
from queuewatch.transports import SendError, Transport, open_transport
from queuewatch.watching import Watch, stats, unwatch, watch

__all__ = ["SendError", "Transport", "Watch", "flush", "open_transport", "stats", "unwatch", "watch"]
