"""Server-sent events: browsers are notified of a new snapshot and fetch the parts they show."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sinks.http.errors import ApiError
from sinks.http.settings import HttpSettings
from sinks.lines import to_json
from sinks.store import SnapshotStore

_LOOK_S = 0.25
"""How often a stream checks for a new snapshot."""
_AT_MOST_EVERY_S = 1.0
"""Minimum time between two notifications, because there may be several batches per second."""
_KEEP_ALIVE_S = 15.0


class Stream:
    """`GET /api/v1/stream`. `stopping` ends all streams, so that the server can stop."""

    def __init__(self, store: SnapshotStore, settings: HttpSettings, stopping: threading.Event) -> None:
        self._store = store
        self._settings = settings
        self._stopping = stopping
        self._open = 0

    async def __call__(self, request: Request) -> Response:
        """Send one event `snapshot` with version and time for every new snapshot."""
        if self._open >= self._settings.max_streams:
            raise ApiError(
                503,
                "too_many_streams",
                f"{self._open} browsers are already notified of snapshots",
                "poll /api/v1/queues instead",
                headers={"Retry-After": "60"},
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            # Its answer ends with the headers; the events, which no one would get, would keep the connection busy.
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(self._events(), headers=headers, media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        self._open += 1
        try:
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
        finally:
            self._open -= 1
