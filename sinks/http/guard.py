"""Middleware for every response: access control, security headers, and no bare 500."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from sinks.http.access import Access
from sinks.http.errors import ApiError, internal_error

log = logging.getLogger(__name__)


def content_security_policy(style_hashes: Sequence[str] = ()) -> str:
    """Return a policy that allows only this service's files, and inline styles with the given hashes (`sha256-…`)."""
    styles = " ".join(["'self'", *(f"'{value}'" for value in style_hashes)])
    return (
        f"default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self'; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )


HEADERS = {
    "Content-Security-Policy": content_security_policy(),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._access.check(scope["path"], headers.get("host", ""), headers.get("authorization", ""))
        except ApiError as error:
            await error.response()(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except Exception:
            log.exception("answering %s %s failed", scope["method"], scope["path"])
            if began:
                raise  # Half an answer was sent: only closing the connection signals the error.
            await internal_error()(scope, receive, send_guarded)
