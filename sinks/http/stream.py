"""Server-sent events: browsers are notified of a new snapshot and fetch the parts they show."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sinks.http.errors import ApiError
from sinks.http.settings import HttpSettings
from sinks.lines import to_json
from sinks.store import SnapshotStore

_LOOK_S = 0.25
"""How often a stream checks for a new snapshot."""
_AT_MOST_EVERY_S = 1.0
"""Minimum time between two notifications, because there may be several batches per second."""
_KEEP_ALIVE_S = 15.0
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Stream:
    """`GET /api/v1/stream`. `stopping` ends all streams, so that the server can stop."""

    def __init__(self, store: SnapshotStore, settings: HttpSettings, stopping: threading.Event) -> None:
        self._store = store
        self._settings = settings
        self._stopping = stopping
        self._open = 0
        # To a service behind a proxy all browsers have one address: their streams must not take all of its connections.
        self._most = max(1, min(settings.max_streams, settings.connections.per_address // 2, settings.connections.total // 2))

    async def __call__(self, request: Request) -> Response:
        """Send one event `snapshot` with version and time for every new snapshot."""
        if self._open >= self._most:
            raise ApiError(
                503,
                "too_many_streams",
                f"{self._open} browsers are already notified of snapshots",
                "poll /api/v1/queues instead",
                headers={"Retry-After": "60"},
            )
        if request.method == "HEAD":
            # Its answer ends with the headers; the events, which no one would get, would keep the connection busy.
            return Response(headers=_HEADERS, media_type=_MEDIA_TYPE)
        self._open += 1
        return _Counted(self._events(), self._ended)

    def _ended(self) -> None:
        self._open -= 1

    async def _events(self) -> AsyncIterator[str]:
        yield "retry: 3000\n\n"
        sent, sent_at = 0, 0.0
        while not self._stopping.is_set():
            published = self._store.latest
            now = time.monotonic()
            if published is not None and published.version != sent and now - sent_at >= _AT_MOST_EVERY_S:
                sent, sent_at = published.version, now
                data = to_json({"version": sent, "at_ms": published.snapshot.at_ms})
                yield f"event: snapshot\nid: {sent}\ndata: {data}\n\n"
            elif now - sent_at >= _KEEP_ALIVE_S:
                sent_at = now
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_S)


class _Counted(StreamingResponse):
    """A stream that says when it has ended, even if it ends before its first event."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(events, headers=_HEADERS, media_type=_MEDIA_TYPE)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
