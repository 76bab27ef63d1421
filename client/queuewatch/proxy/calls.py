"""Parses an application's call: protocol, operation and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import unquote_plus

from queuewatch.proxy import json_protocol, query_protocol
from queuewatch.proxy.requested_attributes import RequestedAttributes

_TARGET: Final = "AmazonSQS."


class Codec(Protocol):
    """The common interface of `json_protocol` and `query_protocol`."""

    def parse(self, body: bytes, /) -> dict[str, Any]: ...
    def with_queue_url(self, body: bytes, url: str, /) -> bytes: ...
    def asking_for_all(
        self, body: bytes, params: Mapping[str, Any], lineage_attribute: str | None, /
    ) -> tuple[bytes, RequestedAttributes]: ...
    def parse_answer(self, operation: str, body: bytes, /) -> dict[str, Any]: ...
    def parse_error(self, body: bytes, /) -> dict[str, Any]: ...
    def strip(self, body: bytes, answer: Mapping[str, Any], asked: RequestedAttributes, /) -> bytes: ...
    def with_queue_urls(self, body: bytes, change: Callable[[str], str], /) -> bytes: ...
    def error(self, code: str, message: str, *, sender: bool) -> tuple[bytes, list[tuple[str, str]]]: ...


@dataclass
class AppCall:
    """A call to forward. A call that could not be parsed has no operation and is forwarded unchanged."""

    codec: Codec
    body: bytes
    operation: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    is_from_url: bool = False
    """Whether the body contains parameters of the URL: a GET request has no other, and no content type."""


def read_call(headers: Mapping[str, str], query_string: str, body: bytes) -> AppCall:
    """Parse a call as far as possible; never raises. `query_string` is the URL's, not decoded."""
    target = headers.get("X-Amz-Target")
    if target is not None:
        call = AppCall(json_protocol, body)
        operation = target.removeprefix(_TARGET) if target.startswith(_TARGET) else ""
    else:
        moved = _parameters(query_string)
        call = AppCall(query_protocol, b"&".join(part for part in (*moved, body) if part), is_from_url=bool(moved))
        operation = ""
    try:
        call.params = call.codec.parse(call.body)
        call.operation = operation or str(call.params.get("Action", ""))
    except Exception:
        # SQS will refuse an invalid call, and the proxy returns that response.
        call.params = {}
    return call


def is_retry(sdk_request: str) -> bool:
    """Return whether the header `amz-sdk-request`, for example `attempt=2; max=3`, is that of a second or later attempt."""
    attempt = re.search(r"\battempt=(\d+)", sdk_request)
    return attempt is not None and int(attempt[1]) > 1


def _parameters(query_string: str) -> list[bytes]:
    """Return the parameters in a Query call's URL as they are written there, except those of the application's signature."""
    parts = [part for part in query_string.split("&") if part and not unquote_plus(part).startswith("X-Amz-")]
    return [part.encode(errors="surrogateescape") for part in parts]
