"""Create the service's own boto3 clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound

from sources.collect.base import CollectorRefused
from sources.sqs.config import SqsCollectorConfig

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class UnreadableAnswer(BotoCoreError):
    """An answer that botocore's parsers fail on, such as a proxy's error page that is not UTF-8."""

    fmt = "it cannot be read ({error}), so it is not from AWS: check the proxy or endpoint_url"


def make_clients(config: SqsCollectorConfig, *, read_timeout_s: float = 15.0) -> list[SQSClient]:
    """Create one client per region, each slowing itself down when SQS throttles it.

    Raises `CollectorRefused` when the profile does not exist or no region is known.
    """
    clients: list[SQSClient] = _clients(config, "sqs", config.endpoint_url, read_timeout_s)
    return clients


def make_lambda_clients(config: SqsCollectorConfig) -> list[Any]:
    """Create clients of AWS Lambda for the same login, in the same regions and order. Raises `CollectorRefused`."""
    return _clients(config, "lambda", None, 15.0)


def _clients(config: SqsCollectorConfig, service: str, endpoint_url: str | None, read_timeout_s: float) -> list[Any]:
    settings = Config(
        retries={"mode": "adaptive", "max_attempts": 4},
        connect_timeout=5,
        read_timeout=read_timeout_s,
        max_pool_connections=config.concurrency + 2,
        user_agent_extra="queuewatch",
    )
    try:
        session: Any = boto3.Session(profile_name=config.profile)
        # boto3 reads AWS_DEFAULT_REGION and the profile; EKS, ECS and Lambda set AWS_REGION.
        regions = config.regions or (session.region_name or os.environ.get("AWS_REGION", ""),)
        if not all(regions):
            raise CollectorRefused(
                "no AWS region: set AWS_REGION in the environment, or collect.sqs.regions (`doctor sqs`: --region)"
            )
        return [
            _with_one_kind_of_errors(session.client(service, region_name=region, endpoint_url=endpoint_url, config=settings))
            for region in regions
        ]
    except ProfileNotFound as error:
        where = "AWS_PROFILE" if config.profile is None else "collect.sqs.profile (`doctor sqs`: --profile)"
        raise CollectorRefused(f"{where}: {error}; `aws configure list-profiles` lists them") from error
    except (BotoCoreError, ValueError) as error:
        fix = ""
        if str(error).startswith("Invalid endpoint"):
            fix = "; a URL begins with http:// or https://: correct collect.sqs.endpoint_url, or AWS_ENDPOINT_URL_SQS"
        raise CollectorRefused(f"collect.sqs: {error}{fix}") from error


def _with_one_kind_of_errors(client: Any) -> Any:
    """Make every failed call of a client raise botocore's errors, whatever its parsers raise."""
    call = client._make_api_call

    def checked(operation: str, parameters: dict[str, Any]) -> Any:
        try:
            return call(operation, parameters)
        except (BotoCoreError, ClientError):
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnreadableAnswer(error=f"{type(error).__name__}: {error}") from error

    client._make_api_call = checked
    return client
