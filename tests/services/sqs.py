"""boto3 clients for the local SQS services."""

from typing import TYPE_CHECKING

import boto3
from botocore.loaders import create_loader

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

REGION = "us-east-1"
# Reading the models takes a tenth of a second: sessions share what was read, and nothing else.
_MODELS = create_loader()


def session() -> boto3.Session:
    """Return a session with credentials that are valid nowhere, so that no test can reach a real account."""
    made = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)
    made._session.register_component("data_loader", _MODELS)
    return made


def client(endpoint: str) -> "SQSClient":
    """Return an SQS client of the local service at `endpoint`."""
    return session().client("sqs", endpoint_url=endpoint)
