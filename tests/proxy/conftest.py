"""A proxy in front of each stand-in for SQS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services import proxy as proxy_service
from tests.services.provider import Services
from tests.services.proxy import Proxy


@pytest.fixture(scope="session", params=["moto_sqs", "elasticmq"])
def upstream(request: pytest.FixtureRequest, services: Services) -> str:  # noqa: ARG001 -- what `param` names needs it
    """The endpoint of a stand-in for SQS."""
    endpoint: str = request.getfixturevalue(request.param).endpoint
    return endpoint


@pytest.fixture(scope="session")
def shared_proxy(upstream: str) -> Iterator[Proxy]:
    """One proxy for all tests that only make calls; its events are a mix of all of them."""
    with proxy_service.start(upstream) as proxy:
        yield proxy


@pytest.fixture
def proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy for one test."""
    with proxy_service.start(upstream) as made:
        yield made
