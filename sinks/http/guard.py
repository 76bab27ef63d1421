"""Middleware for every response: access control, security headers, limited memory, and no bare 500."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from sinks.http.access import Access
from sinks.http.connections import CUT
from sinks.http.errors import ApiError, internal_error
from sinks.http.unread import UnreadResponses

log = logging.getLogger(__name__)

_PART_BYTES: Final = 64 * 1024
"""A response is passed on in parts of this size, each when the one before has been read: what is passed on is copied."""


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

    def __init__(self, app: ASGIApp, access: Access, unread: UnreadResponses) -> None:
        self._app = app
        self._access = access
        self._unread = unread

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
            if len(message.get("body", b"")) > _PART_BYTES and scope["method"] != "HEAD":
                await self._send_in_parts(message, scope, send)
            else:
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

    async def _send_in_parts(self, message: MutableMapping[str, Any], scope: Scope, send: Send) -> None:
        body = memoryview(message["body"])
        client, _ = scope.get("client") or ("", 0)
        with self._unread.holding(client, len(body), scope.get("state", {}).get(CUT, lambda: None)):
            for end in range(_PART_BYTES, len(body) + _PART_BYTES, _PART_BYTES):
                more = end < len(body) or message.get("more_body", False)
                await send({**message, "body": bytes(body[end - _PART_BYTES : end]), "more_body": more})
