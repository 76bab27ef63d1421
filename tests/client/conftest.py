"""A transport that keeps the events, and both stand-ins for SQS."""

from __future__ import annotations

import pytest

from tests.client.transports import Kept
from tests.services.provider import Services

SCOPES = {"moto_sqs": "123456789012/us-east-1", "elasticmq": "000000000000/us-east-1"}


@pytest.fixture(params=["moto_sqs", "elasticmq"])
def service(request: pytest.FixtureRequest, services: Services) -> tuple[str, str]:  # noqa: ARG001 -- what `param` names needs it
    """Endpoint and scope of a stand-in for SQS."""
    return request.getfixturevalue(request.param).endpoint, SCOPES[request.param]


@pytest.fixture
def kept() -> Kept:
    """A transport that keeps the events."""
    return Kept()
