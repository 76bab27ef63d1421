"""boto3 clients of the service's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from sources.collect.base import CollectorRefused
from sources.sqs.config import SqsCollectorConfig

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


def make_clients(config: SqsCollectorConfig, *, read_timeout_s: float = 15.0) -> list[SQSClient]:
    """One client per region, each slowing itself down when SQS throttles it.

    Raises `CollectorRefused` when the profile does not exist or no region is known.
    """
    settings = Config(
        retries={"mode": "adaptive", "max_attempts": 4},
        connect_timeout=5,
        read_timeout=read_timeout_s,
        max_pool_connections=config.concurrency + 2,
        user_agent_extra="queuewatch",
    )
    try:
        session = boto3.Session(profile_name=config.profile)
        regions = config.regions or (session.region_name or "",)
        if not all(regions):
            raise CollectorRefused("no AWS region: set collect.sqs.regions, or AWS_REGION in the environment")
        return [
            session.client("sqs", region_name=region, endpoint_url=config.endpoint_url, config=settings) for region in regions
        ]
    except (BotoCoreError, ValueError) as error:
        raise CollectorRefused(f"collect.sqs: {error}") from error
