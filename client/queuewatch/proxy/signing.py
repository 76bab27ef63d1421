"""Signature version 4 for SQS.

botocore signs too, in about 0.2 ms a call; this does the same for the few headers of an SQS call in a tenth of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote

from botocore.utils import normalize_url_path

SERVICE: Final = "sqs"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


class Credentials(Protocol):
    """What botocore's frozen credentials are."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class Target(NamedTuple):
    """Where a call goes: `host` as the Host header has it, `path` as it is sent."""

    host: str
    path: str
    region: str


def canonical_path(path: str) -> str:
    """A path percent-encoded as the signature expects it, to be sent in this form."""
    if "//" in path or "/." in path:
        path = normalize_url_path(path)
    return quote(path, safe="/~%") or "/"


def signature_headers(
    target: Target, headers: Iterable[tuple[str, str]], body: bytes, credentials: Credentials, at_s: float
) -> list[tuple[str, str]]:
    """The headers that sign a POST: Host, X-Amz-Date, Authorization and, with temporary credentials, the token.

    Of `headers`, the content type and those named x-amz-… are signed; what else is sent is not covered.
    """
    stamp = _stamp(int(at_s))
    added = [("Host", target.host), ("X-Amz-Date", stamp)]
    if credentials.token:
        added.append(("X-Amz-Security-Token", credentials.token))
    named = [(_signed_name(name), value) for name, value in (*headers, *added)]
    signed = sorted([(name, " ".join(value.split())) for name, value in named if name])
    names = ";".join([name for name, _ in signed])
    lines = "".join([f"{name}:{value}\n" for name, value in signed])
    # The path once more: a signature covers its percent signs encoded, for every service but S3.
    path = quote(target.path, safe="/~")
    request = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{stamp[:8]}/{target.region}/{SERVICE}/aws4_request"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = _signing_key(credentials.secret_key, stamp[:8], target.region)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    added.append(("Authorization", authorization))
    return added


@lru_cache(maxsize=1024)
def _signed_name(name: str) -> str:
    """A header's name as it is signed; empty for one that is not."""
    name = name.lower()
    return name if name in ("content-type", "host") or name.startswith("x-amz-") else ""


@lru_cache(maxsize=4)
def _stamp(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")


@lru_cache(maxsize=16)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
