"""`POST /api/v1/events`: telemetry from Workers and small senders, acknowledged once it is durable."""

from __future__ import annotations

import asyncio
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sinks.http.access import Credentials
from sinks.http.budget import ByteBudget, OverBudgetError, Share
from sinks.http.errors import ApiError
from sinks.http.responses import json_response
from sinks.http.settings import IngestSettings
from sinks.http.staging import BodyKind, StageFullError, StageUnavailableError
from sinks.prometheus import Family
from sources.wire import Decoded
from sources.wire.arrow import STREAM_MARK
from sources.wire.event_json import BYTE_ORDER_MARK, GZIP

CONTENT_TYPES = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/vnd.apache.arrow.stream",
    }
)
"""Accepted content types. The actual format of a body is detected from its content, as everywhere."""

_MAX_MEMBERS = 64
"""Maximum members of a gzip body, because each costs a copy of the rest."""
_INFLATED_AT_ONCE = 1 << 20
_TOKEN_FIX = "send `Authorization: Bearer TOKEN` with the token of http.ingest.token_file"


@dataclass(frozen=True, slots=True)
class _Taken:
    accepted: int
    decoded: Decoded


class Ingest:
    """The endpoint, with its counters."""

    def __init__(self, settings: IngestSettings | None) -> None:
        self._settings = settings
        self._credentials = Credentials(token=settings.token if settings is not None else None, fix=_TOKEN_FIX)
        self._budget = ByteBudget(settings.max_bytes_at_once if settings is not None else 0)
        self._in_work = 0
        self._threads: anyio.CapacityLimiter | None = None
        self._answers: Counter[int] = Counter()
        self._events: Counter[str] = Counter()

    async def __call__(self, request: Request) -> Response:
        """Answer one request; raises ApiError unless it succeeds."""
        try:
            response = await self._answer(request)
        except ApiError as error:
            self._answers[error.status] += 1
            raise
        self._answers[response.status_code] += 1
        return response

    def families(self) -> Iterable[Family]:
        """Return the counters of requests and events for `/metrics`."""
        if self._settings is None:
            return ()
        return (
            Family(
                "queuewatch_ingest_requests_total",
                [({"code": str(code)}, count) for code, count in sorted(self._answers.items())],
            ),
            Family(
                "queuewatch_ingest_events_total",
                [({"result": result}, self._events[result]) for result in ("accepted", "invalid")],
            ),
        )

    async def _answer(self, request: Request) -> Response:
        settings = self._settings
        if settings is None:
            raise ApiError(
                404, "ingest_off", "this service takes no events", "set http.ingest.enabled: true and source.spool.folder"
            )
        self._credentials.check(request.headers.get("authorization", ""))
        _check_headers(request, settings)
        try:
            with Share(self._budget) as held:
                body = await _read(request, settings, held)
                taken = await self._process(body, _coding(request) == "gzip", settings, held)
        except OverBudgetError:
            raise _busy(f"bodies of {settings.max_bytes_at_once} bytes are being received and processed") from None
        refused = taken.decoded.refused
        self._events["accepted"] += taken.accepted
        self._events["invalid"] += refused.total()
        if not taken.accepted:
            raise _none_readable(taken.decoded)
        answer: dict[str, Any] = {"accepted": taken.accepted, "invalid": refused.total()}
        if refused:
            answer["reasons"] = refused
            answer["first_invalid"] = _described(taken.decoded)
        return json_response(answer, status=202)

    async def _process(self, body: bytes, gzipped: bool, settings: IngestSettings, held: Share) -> _Taken:
        # Counted from here on, not while a body is received: a few slow senders would keep out all others.
        if self._in_work >= settings.max_concurrent:
            raise _busy(f"{settings.max_concurrent} bodies are being processed")
        self._in_work += 1
        try:
            if self._threads is None:
                self._threads = anyio.CapacityLimiter(settings.max_concurrent)
            return await anyio.to_thread.run_sync(_take, body, gzipped, settings, held, limiter=self._threads)
        finally:
            self._in_work -= 1


def _check_headers(request: Request, settings: IngestSettings) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise ApiError(
            415,
            "content_type",
            f"content type {content_type!r} is not supported" if content_type else "the content type is missing",
            f"send one of {', '.join(sorted(CONTENT_TYPES))}",
        )
    if _coding(request) not in ("", "identity", "gzip"):
        raise ApiError(415, "content_encoding", f"content encoding {_coding(request)!r} is not supported", "send gzip or plain")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > settings.max_body_bytes:
        raise _too_large(settings)


def _coding(request: Request) -> str:
    return request.headers.get("content-encoding", "").strip().lower()


async def _read(request: Request, settings: IngestSettings, held: Share) -> bytes:
    body = bytearray()  # A list of small chunks would take many times the memory that `held` accounts for.
    try:
        async with asyncio.timeout(settings.body_within_s):
            async for chunk in request.stream():
                if len(body) + len(chunk) > settings.max_body_bytes:
                    raise _too_large(settings)
                held.take(len(chunk))
                body += chunk
    except TimeoutError:
        raise ApiError(
            408, "slow_body", f"the body took longer than {settings.body_within_s:g} s", "send smaller bodies"
        ) from None
    except ClientDisconnect:
        raise ApiError(400, "cut_off", "the connection ended within the body", "send it again") from None
    return bytes(body)


def _take(body: bytes, gzipped: bool, settings: IngestSettings, held: Share) -> _Taken:
    """Decompress, parse and stage one body. Runs in a thread."""
    if gzipped:
        body = _inflated(body, settings, held)
    elif body.startswith(GZIP):
        raise ApiError(415, "content_encoding", "the body is gzip, and no header says so", "send Content-Encoding: gzip")
    if not body.strip():
        raise ApiError(400, "empty", "the body is empty", "send at least one event")
    _check_count(_least_events(body), settings)
    body, kind = _staged(body)
    decoded = settings.decode([body])
    accepted = decoded.events.num_rows
    _check_count(accepted + decoded.refused.total(), settings)
    if not (accepted or decoded.invalid):
        raise ApiError(400, "empty", "the body holds no event", "send at least one event")
    # Invalid events too, even if there are no others: the job counts them and keeps them in quarantine.
    try:
        settings.stage.put(body, kind)
    except StageFullError as error:
        raise ApiError(507, "no_room", str(error), "send again later", headers={"Retry-After": "30"}) from error
    except StageUnavailableError as error:
        raise ApiError(503, "stage", str(error), "send again later", headers={"Retry-After": "30"}) from error
    return _Taken(accepted, decoded)


_CONTAINERS_PER_EVENT = 8
"""Maximum objects and arrays in one event: the event, its attributes, tags and nested lists."""


def _least_events(body: bytes) -> int:
    """Return a lower bound for the events in a body, or for an equivalent parsing cost, without parsing it."""
    if body.startswith(STREAM_MARK):
        return 0  # bounded by its own length, see sources/wire/arrow_sizes.py
    containers = body.count(b"{") + body.count(b"[")
    # A pretty-printed body has many lines but few objects.
    return max(min(body.count(b"\n"), containers), containers // _CONTAINERS_PER_EVENT)


def _check_count(count: int, settings: IngestSettings) -> None:
    if count > settings.max_events:
        raise ApiError(
            413,
            "too_many_events",
            f"the body contains more than {settings.max_events} events",
            "split it over several requests; nothing of this body was kept",
        )


def _staged(body: bytes) -> tuple[bytes, BodyKind]:
    """Return a body as it is stored: what is decoded for the answer is what the job reads."""
    if body.startswith(STREAM_MARK):
        return body, "arrow"
    lines = as_lines(body)
    return (body, "json") if lines is None else (lines, "ndjson")


def as_lines(body: bytes) -> bytes | None:
    """Convert JSON to one object per line, so that bodies can share a file: an array's elements, an object over many lines.

    None for a body with anything else in it, or that Python cannot parse: among other lines it could be read differently. A line
    that begins with a bracket, for example, can make the whole file an array.
    """
    text = body.removeprefix(BYTE_ORDER_MARK)
    if _are_objects(text):
        return text
    try:
        objects = list(_objects(text.decode("utf-8").strip(_BLANK)))
    except (ValueError, RecursionError):
        return None
    # Between the tokens of JSON a line break is a blank; within a string it is not allowed.
    return b"".join(one.replace("\n", " ").encode() + b"\n" for one in objects) or None


_BLANK = " \t\r\n"
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_parse = json.JSONDecoder().raw_decode


def _are_objects(text: bytes) -> bool:
    """Whether every line but the empty ones has the braces of an object."""
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in io.BytesIO(text))
    return all(line.startswith(b"{") and line.endswith(b"}") for line in lines if line)


def _objects(text: str) -> Iterator[str]:
    """Yield the text of an object, or of each one in an array. Raises `ValueError` for any other text."""
    inner = text[1:-1].strip(_BLANK) if text.startswith("[") and text.endswith("]") else text
    at = 0
    while inner:
        value, end = _parse(inner, at)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        yield inner[at:end]
        if end == len(inner):
            return
        comma = _COMMA.match(inner, end)
        if comma is None or inner is text:
            raise ValueError("text after an object")
        at = comma.end()


def _inflated(body: bytes, settings: IngestSettings, held: Share) -> bytes:
    """Return the content of all gzip members, never more than allowed, whatever size the body claims."""
    # A gzip body was cut off or damaged on its way; one that begins otherwise was never compressed.
    fix = "send it again" if body.startswith(GZIP) else "compress the body, or leave out Content-Encoding"
    left = settings.max_inflated_bytes
    parts: list[bytes] = []
    members = 0
    try:
        while body:
            members += 1
            if members > _MAX_MEMBERS:
                raise ApiError(400, "not_gzip", f"the body has more than {_MAX_MEMBERS} gzip members", "compress it as one")
            member = zlib.decompressobj(wbits=31)
            while not member.eof:
                part = member.decompress(body, min(_INFLATED_AT_ONCE, left + 1))
                held.take(len(part))
                left -= len(part)
                if left < 0:
                    raise ApiError(
                        413,
                        "too_large",
                        f"the body is larger than {settings.max_inflated_bytes} bytes when decompressed",
                        "split it over several requests",
                    )
                parts.append(part)
                body = member.unconsumed_tail
                if not (part or body or member.eof):
                    raise zlib.error("the stream ends too early")
            body = member.unused_data
    except zlib.error as error:
        raise ApiError(400, "not_gzip", f"the body is not gzip as its header says: {error}", fix) from None
    return b"".join(parts)


def _busy(why: str) -> ApiError:
    return ApiError(429, "busy", why, "send again in a second, with more events per request", headers={"Retry-After": "1"})


def _too_large(settings: IngestSettings) -> ApiError:
    return ApiError(
        413,
        "too_large",
        f"the body is larger than {settings.max_body_bytes} bytes",
        "split it over several requests, or raise http.ingest.max_body_bytes",
    )


def _none_readable(decoded: Decoded) -> ApiError:
    first = decoded.invalid[0]
    return ApiError(
        400,
        "invalid_events",
        f"none of {decoded.refused.total()} events can be read; the first: {first.reason}: {first.detail}",
        "compare with the wire format in the documentation; the job keeps invalid events in quarantine",
        invalid=decoded.refused.total(),
        first_invalid=_described(decoded),
    )


def _described(decoded: Decoded) -> dict[str, Any]:
    first = min(decoded.invalid, key=lambda event: event.line or 0)
    return {"line": first.line, "reason": first.reason, "detail": first.detail}
