"""JSON responses, compressed if they are large enough."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from sinks.gzip_blocks import gzipped
from sinks.lines import to_json

_WORTH_COMPRESSING = 2_048
"""Minimum size in bytes; below it, the headers cost as much as the compression saves."""


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None, accept_encoding: str = ""
) -> Response:
    """Return `value` as JSON, never cached. `accept_encoding` is the request's header."""
    return compressible(
        to_json(value).encode(),
        "application/json",
        accept_encoding,
        status=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def compressible(
    body: bytes,
    content_type: str,
    accept_encoding: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return `body`, gzipped if the client accepts that and it is large enough."""
    sent = {"Content-Type": content_type, "Vary": "Accept-Encoding", **(headers or {})}
    if len(body) >= _WORTH_COMPRESSING and takes_gzip(accept_encoding):
        body = gzipped([body])
        sent["Content-Encoding"] = "gzip"
    return Response(body, status, sent)


def takes_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip: what it says of gzip counts before what it says of `*`."""
    allowed: dict[str, bool] = {}
    for offer in accept_encoding.lower().split(","):
        coding, _, quality = offer.partition(";")
        allowed[coding.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return allowed.get("gzip", allowed.get("*", False))
