"""One look at an account, for `queuewatch doctor sqs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sources.events import Event
from sources.sqs.account import AccountReader, Problem
from sources.sqs.config import DiscoveryConfig

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


def read_account(client: SQSClient, discovery: DiscoveryConfig, *, problems: list[Problem] | None = None) -> list[Event]:
    """One `queue_state` event for each queue that `discovery` finds, dead-letter queues included.

    Calls that fail for single queues are appended to `problems`. Raises botocore's errors when the queues cannot
    be listed at all.
    """
    reader = AccountReader(client, discovery)
    reader.discover()
    events = reader.read()
    if problems is not None:
        problems.extend(reader.take_problems())
    return events
