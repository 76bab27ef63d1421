"""Queue URLs: the application gets ones that lead to the proxy, SQS gets its own."""

from __future__ import annotations

from urllib.parse import urlsplit

from queuewatch.proxy.upstreams import Upstream


class QueueUrls:
    """Translates the queue URLs of one call, which came to the address `own_host` (its Host header).

    Some SDKs call the host in a queue's URL and not the endpoint they are configured with: with SQS' own URL they would
    pass the proxy by.
    """

    def __init__(self, own_host: str, upstream: Upstream, *, rewrite: bool) -> None:
        self._own = own_host.lower()
        self._upstream = upstream
        self._rewrite = rewrite

    def is_own(self, url: str) -> bool:
        """Whether a queue URL leads to the proxy."""
        return url.lower().startswith((f"http://{self._own}/", f"https://{self._own}/"))

    def to_upstream(self, url: str) -> str:
        """The queue URL as SQS gave it."""
        return f"{self._upstream.queue_origin}{urlsplit(url).path}" if self.is_own(url) else url

    def to_application(self, url: str) -> str:
        """The queue URL as the application gets it."""
        parts = urlsplit(url)
        if not self._rewrite or not parts.netloc:
            return url
        self._upstream.queue_origin = f"{parts.scheme}://{parts.netloc}"
        return f"http://{self._own}{parts.path}"

    def canonical(self, url: str) -> str:
        """One form for all URLs of a queue that belong to the endpoint, so that its handles are found again."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if self.is_own(url) or origin == self._upstream.queue_origin:
            return f"{self._upstream.origin}{parts.path}"
        return url
