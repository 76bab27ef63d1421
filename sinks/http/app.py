"""The HTTP service as an ASGI application."""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sinks.http import page
from sinks.http.access import INGEST_PATHS
from sinks.http.connections import Connections
from sinks.http.errors import ApiError, answer_api_error, answer_http_error
from sinks.http.guard import Guard, content_security_policy
from sinks.http.health import Health
from sinks.http.ingest import Ingest
from sinks.http.read import ReadApi
from sinks.http.responses import compressible, takes_gzip
from sinks.http.settings import HttpSettings, Page
from sinks.http.stream import Stream
from sinks.http.unread import UnreadResponses
from sinks.native_histograms import PROTOBUF_TYPE, NativeExposition, wants_protobuf
from sinks.prometheus import OPENMETRICS_TYPE, TEXT_TYPE, Exposition, wants_openmetrics
from sinks.store import SnapshotStore


class _NameConvertor(PathConvertor):
    """A path parameter for external names, which may contain anything, including newlines and slashes."""

    regex = "(?s:.+)"


register_url_convertor("name", _NameConvertor())


def create_app(store: SnapshotStore, settings: HttpSettings | None = None) -> Starlette:
    """Create the application: page, metrics, API, health and ingest, all based on `store`.

    Setting `app.state.stopping` (a threading.Event) ends the streams, which a server must do before it stops.
    """
    settings = settings or HttpSettings()
    stopping = threading.Event()
    read = ReadApi(store, settings)
    health = Health(store, settings)
    ingest = Ingest(settings.ingest)
    connections = Connections(settings.connections)
    about_sinks = (*settings.about_sinks, ingest.families, connections.families)
    exposition = Exposition(about_sinks=about_sinks, left_out=settings.metrics_left_out, zero_states=settings.metrics_zero_states)
    app = Starlette(
        routes=[
            Route("/", page.index),
            Route("/assets/{name}", page.asset),
            Route("/metrics", _metrics(store, settings, exposition)),
            Route("/metrics/native", _native_histograms(store, NativeExposition(left_out=settings.metrics_left_out))),
            Route("/api/v1/queues", read.queues),
            # A queue's name may contain slashes, and even end in /messages: the longest name wins.
            Route("/api/v1/queues/{queue:name}/messages", read.messages),
            Route("/api/v1/queue", read.queue),
            Route("/api/v1/signals", read.signals),
            Route("/api/v1/signals/{id}", read.advice),
            Route("/api/v1/search", read.search),
            Route("/api/v1/explain/{what:name}", read.explain),
            Route("/api/v1/stream", Stream(store, settings, stopping).__call__),
            *(Route(path, ingest.__call__, methods=["POST"]) for path in INGEST_PATHS),
            Route("/-/healthy", health.healthy),
            Route("/-/ready", health.ready),
            *(Route(path, _further_page(content)) for path, content in settings.pages.items()),
        ],
        middleware=[Middleware(Guard, access=settings.access, unread=UnreadResponses(settings.connections.unread_bytes))],
        exception_handlers={ApiError: answer_api_error, HTTPException: answer_http_error},
    )
    # The router's redirect is an absolute URL, which loses the scheme and the path of a proxy in front.
    app.router.redirect_slashes = False
    app.state.stopping = stopping
    app.state.connections = connections
    return app


def _metrics(store: SnapshotStore, settings: HttpSettings, exposition: Exposition) -> Callable[[Request], Response]:
    def metrics(request: Request) -> Response:
        """`GET /metrics`."""
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        published, now_ms = store.latest, settings.clock_ms()
        snapshot = None if published is None else published.snapshot
        if snapshot is not None:
            now_ms = snapshot.time_at(now_ms)
        render, headers = exposition.render, {"Vary": "Accept, Accept-Encoding"}
        if takes_gzip(request.headers.get("accept-encoding", "")):
            render, headers["Content-Encoding"] = exposition.render_gzip, "gzip"
        body = render(snapshot, now_ms, openmetrics=openmetrics)
        return Response(body, headers=headers | {"Content-Type": OPENMETRICS_TYPE if openmetrics else TEXT_TYPE})

    return metrics


def _native_histograms(store: SnapshotStore, exposition: NativeExposition) -> Callable[[Request], Response]:
    def native_histograms(request: Request) -> Response:
        """`GET /metrics/native`."""
        if not wants_protobuf(request.headers.get("accept", "")):
            raise ApiError(
                406,
                "protobuf_only",
                "native histograms exist in Prometheus' protobuf format only, which this request does not accept",
                "let Prometheus scrape them with --enable-feature=native-histograms; classic histograms are at /metrics",
            )
        published = store.latest
        render, headers = exposition.render, {"Vary": "Accept, Accept-Encoding", "Content-Type": PROTOBUF_TYPE}
        if takes_gzip(request.headers.get("accept-encoding", "")):
            render, headers["Content-Encoding"] = exposition.render_gzip, "gzip"
        return Response(render(None if published is None else published.snapshot), headers=headers)

    return native_histograms


def _further_page(content: Page) -> Callable[[Request], Awaitable[Response]]:
    # A single-file page has inline styles; each is allowed by its hash, and nothing else is allowed.
    styles = re.findall(rb"<style>(.*?)</style>", content.body, re.DOTALL)
    hashes = [f"sha256-{b64encode(sha256(style).digest()).decode()}" for style in styles]
    headers = {"Content-Security-Policy": content_security_policy(hashes)}

    async def further_page(request: Request) -> Response:
        encoding = request.headers.get("accept-encoding", "")
        return compressible(content.body, content.content_type, encoding, headers=headers)

    return further_page
