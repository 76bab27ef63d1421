"""Signatures equal those of botocore."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewatch.proxy.signing import Target, canonical_path, signature_headers

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
_HEADERS = st.dictionaries(st.sampled_from(["Content-Type", "X-Amz-Target", "x-amz-custom"]), _TEXT.map(str.strip))
_PATHS = st.text("abc/.-_~% 0:+é", max_size=20).map(lambda text: f"/{text.replace('%', '%25')}")


@contextmanager
def _at(at_s: int) -> Iterator[None]:
    """Set the time that botocore reads."""
    import datetime

    now = datetime.datetime.fromtimestamp(at_s, datetime.UTC).replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", return_value=now):
        yield


@pytest.mark.slow
@settings(max_examples=200)
@given(
    headers=_HEADERS,
    path=_PATHS,
    body=st.binary(max_size=200),
    token=st.none() | st.just("session/token=="),
    at_s=st.integers(1_700_000_000, 1_900_000_000),
)
def test_the_signature_equals_botocores(headers: dict[str, str], path: str, body: bytes, token: str | None, at_s: int) -> None:
    """The whole Authorization header is compared, with and without temporary credentials, for any path and headers."""
    credentials = Credentials("AKID", "secret", token)
    path = canonical_path(path)
    target = Target("sqs.eu-west-1.amazonaws.com", path, "eu-west-1")
    ours = dict(signature_headers(target, headers.items(), body, credentials, at_s))
    request = AWSRequest("POST", f"https://{target.host}{path}", headers=headers, data=body)
    with _at(at_s):
        SigV4Auth(credentials, "sqs", "eu-west-1").add_auth(request)
    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["X-Amz-Date"] == request.headers["X-Amz-Date"]


def test_a_changed_secret_changes_the_signature() -> None:
    """A cached key is valid for one secret, day and region."""
    target = Target("localhost:9324", "/", "eu-west-1")
    made = {
        dict(signature_headers(target._replace(region=region), [], b"", Credentials("A", secret), at_s))["Authorization"][-64:]
        for region in ("eu-west-1", "us-east-1")
        for secret in ("one", "two")
        for at_s in (time.time(), time.time() + 86_400)
    }
    assert len(made) == 8


@pytest.mark.parametrize(
    ("given_path", "sent"),
    [
        ("", "/"),
        ("/", "/"),
        ("/123456789012/orders.fifo", "/123456789012/orders.fifo"),
        ("/1/a b", "/1/a%20b"),
        ("/1/a%20b", "/1/a%20b"),
        ("//1/../2//q", "/2/q"),
    ],
)
def test_paths_are_sent_as_they_are_signed(given_path: str, sent: str) -> None:
    """Paths are encoded once and have no empty or dot segments."""
    assert canonical_path(given_path) == sent
