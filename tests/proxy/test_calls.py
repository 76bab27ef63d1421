"""What the proxy reads from a call besides its parameters."""

from __future__ import annotations

import pytest

from queuewatch.proxy.calls import is_retry


@pytest.mark.parametrize(
    ("header", "retry"),
    [
        ("", False),
        ("attempt=1; max=3", False),
        ("attempt=2; max=3", True),
        ("attempt=10; max=12", True),
        ("ttl=20261123T000000Z; attempt=1; max=11", False),
        ("attempt=x", False),
    ],
)
def test_a_retry_is_recognised_by_the_number_of_its_attempt(header: str, retry: bool) -> None:
    assert is_retry(header) is retry
