"""SDK clients that call through the proxy."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config


def client(endpoint: str, attempts: int = 1) -> Any:
    """Create a boto3 client that makes this many attempts in total."""
    config = Config(retries={"total_max_attempts": attempts, "mode": "standard"}, read_timeout=30, max_pool_connections=50)
    session = boto3.Session("app", "app", region_name="us-east-1")
    return session.client("sqs", endpoint_url=endpoint, config=config)
