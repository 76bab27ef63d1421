"""What the proxy reads from a call besides its parameters."""

from __future__ import annotations

import pytest

from queuewatch.proxy.calls import is_retry, read_call


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


@pytest.mark.parametrize(
    ("query", "body", "sent"),
    [
        ("Action=SendMessage&MessageBody=a%2541%2Bb%26c", b"", b"Action=SendMessage&MessageBody=a%2541%2Bb%26c"),
        ("Action=SendMessage&MessageBody=a+b%20%C3%A9", b"", b"Action=SendMessage&MessageBody=a+b%20%C3%A9"),
        ("Action=SendMessage&X-Amz-Signature=0&X%2DAmz-Date=1", b"MessageBody=a", b"Action=SendMessage&MessageBody=a"),
        ("Action=SendMessage&MessageBody=\udce9", b"", b"Action=SendMessage&MessageBody=\xe9"),
        ("", b"Action=SendMessage&MessageBody=a", b"Action=SendMessage&MessageBody=a"),
    ],
)
def test_the_parameters_of_a_url_are_sent_as_they_are_written(query: str, body: bytes, sent: bytes) -> None:
    """Decoded twice, they would be another message. Those of the application's signature are left out."""
    call = read_call({}, query, body)
    assert (call.body, call.operation, call.is_from_url) == (sent, "SendMessage", bool(query))
