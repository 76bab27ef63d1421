"""Forwards calls to SQS with a new signature, and returns the responses."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from queuewatch.proxy.credentials import CredentialSource
from queuewatch.proxy.signing import Credentials, Target, canonical_path, signature_headers
from queuewatch.proxy.upstreams import Upstream
from queuewatch.tls import HTTP_FIX, is_plain_text

_log = logging.getLogger("queuewatch.proxy")

_CONNECT_WITHIN_S: Final = 5.0
_ANSWER_WITHIN_S: Final = 60.0
"""A long poll takes 20 s at most, so a connection that takes longer than this is dead."""
_IDLE_S: Final = 15.0
"""Idle connections are closed long before SQS closes them, because a call on a connection just closed by SQS would be lost."""
MAX_LINE_BYTES: Final = 65_536
"""The limit for a request or status line and for each header, on both sides; aiohttp's own is 8,190."""

_REFUSED: Final = (400, 401, 403)
"""The statuses of a refused signature. Such a call had no effect and can be repeated."""
_SKEW_S: Final = 240
"""SQS takes signatures that are five minutes old, or dated five minutes ahead."""

_NOT_FORWARDED: Final = frozenset(
    (
        # They apply only to the connection with the application.
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "content-length", "expect", "host"),
        # The proxy must be able to read the response, and has decompressed the request.
        *("accept-encoding", "content-encoding"),
        # The application's signature.
        *("authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "x-amz-region-set"),
    )
)
_NOT_RETURNED: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "trailer", "upgrade"))


class Answer(NamedTuple):
    """SQS' response."""

    status: int
    reason: str
    headers: CIMultiDict[str]
    body: bytes


class NoAnswer(Exception):
    """SQS could not be called, or did not answer; the text says why. The application's SDK retries the call."""


class Forwarder:
    """A pool of connections to the endpoints. Use it in one event loop, and close it."""

    def __init__(self, credentials: CredentialSource, *, tls: ssl.SSLContext | None = None, use_env_proxy: bool = False) -> None:
        self._credentials = credentials
        self.clock_offset_s = 0
        """What is added to this machine's clock for signatures: zero until SQS refuses a call because of its time."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S, ssl=tls or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN_S, sock_read=_ANSWER_WITHIN_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            trust_env=use_env_proxy,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )

    async def forward(self, upstream: Upstream, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
        """Sign and send a call. Raises `NoAnswer`."""
        credentials = await self._credentials.get()
        if credentials is None:
            raise NoAnswer("queuewatch-proxy has no AWS credentials")
        path = canonical_path(path)
        kept = [header for header in headers if _is_forwarded(header[0])]
        offset_s = self.clock_offset_s
        answer = await self._call(upstream, path, kept, body, credentials)
        if answer.status in _REFUSED and self._was_off(offset_s, answer.headers.get("Date", "")):
            answer = await self._call(upstream, path, kept, body, credentials)
        return answer

    async def _call(
        self, upstream: Upstream, path: str, headers: list[tuple[str, str]], body: bytes, credentials: Credentials
    ) -> Answer:
        target = Target(upstream.host, path, upstream.region)
        signed = signature_headers(target, headers, body, credentials, time.time() + self.clock_offset_s)
        sent = CIMultiDict([*headers, *signed])
        try:
            call = self._session.post(_url(upstream.origin, path), data=body, headers=sent, allow_redirects=False)
            async with call as answer:
                content = await answer.read()
                returned = CIMultiDict([header for header in answer.headers.items() if _is_returned(header[0])])
                return Answer(answer.status, answer.reason or "", returned, content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = HTTP_FIX if is_plain_text(error) else type(error).__name__
            raise NoAnswer(f"queuewatch-proxy got no answer from {upstream.host}: {why}") from error

    def _was_off(self, used_s: int, date: str) -> bool:
        """Return whether a signature with this offset differs too much from SQS' time; set the clock by that, as SDKs do.

        An SDK's correction has no effect behind the proxy, which signs with its own clock. Of several calls at once, the first
        that is refused sets the clock, and all are to be repeated.
        """
        try:
            offset_s = round(parsedate_to_datetime(date).timestamp() - time.time())
        except (ValueError, OverflowError):  # no date, or none that can be read
            return False
        if abs(offset_s - used_s) < _SKEW_S:
            return False
        if abs(offset_s - self.clock_offset_s) >= _SKEW_S:
            self.clock_offset_s = offset_s
            _log.warning("this machine's clock differs from SQS' by %d s: calls are signed with the time of SQS", -offset_s)
        return True

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


@lru_cache(maxsize=1024)
def _is_forwarded(name: str) -> bool:
    return name.lower() not in _NOT_FORWARDED


@lru_cache(maxsize=1024)
def _is_returned(name: str) -> bool:
    return name.lower() not in _NOT_RETURNED


@lru_cache(maxsize=256)
def _url(origin: str, path: str) -> URL:
    return URL(origin + path, encoded=True)
