"""Translates queue URLs: the application gets URLs of the proxy, SQS gets its own."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from queuewatch.proxy.upstreams import Upstream


class QueueUrls:
    """Translates the queue URLs of one call, which came to the address `own_host` (its Host header).

    Some SDKs call the host in a queue's URL instead of the configured endpoint; with SQS' own URL they would bypass the proxy.
    """

    def __init__(self, own_host: str, upstream: Upstream, *, rewrite: bool) -> None:
        self._own = own_host.lower()
        self._upstream = upstream
        self._rewrite = rewrite

    def to_upstream(self, url: str) -> str:
        """Return the queue URL as SQS gave it."""
        return _translated(url, self._own, self._upstream.origin, self._upstream.queue_origin).upstream

    def canonical(self, url: str) -> str:
        """Return one canonical form for all URLs of a queue at the endpoint."""
        return _translated(url, self._own, self._upstream.origin, self._upstream.queue_origin).canonical

    def to_application(self, url: str) -> str:
        """Return the queue URL for the application."""
        parts = urlsplit(url)
        if not self._rewrite or not parts.netloc:
            return url
        self._upstream.queue_origin = f"{parts.scheme}://{parts.netloc}"
        return f"http://{self._own}{parts.path}"


class _Translated(NamedTuple):
    upstream: str
    canonical: str


@lru_cache(maxsize=1024)
def _translated(url: str, own_host: str, origin: str, queue_origin: str) -> _Translated:
    parts = urlsplit(url)
    if url.lower().startswith((f"http://{own_host}/", f"https://{own_host}/")):
        return _Translated(f"{queue_origin}{parts.path}", f"{origin}{parts.path}")
    at_endpoint = f"{parts.scheme}://{parts.netloc}" == queue_origin
    return _Translated(url, f"{origin}{parts.path}" if at_endpoint else url)
