"""Telemetry by HTTP POST, to the ingest endpoint of the service."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urljoin

from queuewatch.tls import HTTP_FIX, is_plain_text
from queuewatch.transports.base import SendError, Transport
from queuewatch.transports.deadline import HttpHandler, HttpsHandler
from queuewatch.transports.secrets import TOKEN_VARIABLE, secret, shown
from queuewatch.transports.urls import check_port, split_url

NEVER_RETRIED = frozenset((400, 413, 415, 422))
"""Status codes about the payload itself. All others are retried: even a wrong token or path may be corrected meanwhile."""
_MAX_RETRY_AFTER_S = 300.0
_MAX_ANSWER_BYTES = 4096
_MAX_SHOWN = 300


class HttpTransport(Transport):
    """Posts NDJSON; a bearer token comes from `QUEUEWATCH_TOKEN` or the file in `QUEUEWATCH_TOKEN_FILE`."""

    def __init__(self, url: str, *, timeout_s: float = 10.0, max_bytes: int = 1_000_000) -> None:
        parts = split_url(url)
        if not parts.hostname:
            raise ValueError(f"{shown(url)!r} has no host; use http(s)://host:9400/api/v1/events")
        if parts.username or parts.password:
            raise ValueError(f"a password does not belong in the URL; set {TOKEN_VARIABLE} instead")
        check_port(shown(url), parts)
        if parts.path in ("", "/"):
            parts = parts._replace(path="/api/v1/events")
        self.url = parts._replace(fragment="").geturl()
        self.name = shown(self.url)
        self.max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._opener = opener()

    def send(self, payload: bytes) -> None:
        request = urllib.request.Request(self.url, data=payload, headers=post_headers(), method="POST")  # noqa: S310 -- http(s) only, checked above
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                _start_of(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(self.name, error) from error
        except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
            reason = getattr(error, "reason", None) or error
            if is_plain_text(reason):
                raise SendError(f"{self.name}: {HTTP_FIX}", retry=True) from error
            raise SendError(f"{self.name} does not answer: {reason}", retry=True) from error


def post_headers() -> dict[str, str]:
    """Return the headers of a POST, with the current token. Raises `SendError`."""
    headers = {"Content-Type": "application/x-ndjson", "User-Agent": "queuewatch"}
    token = secret(TOKEN_VARIABLE)
    if token:
        if not (token.isascii() and token.isprintable()):
            raise SendError(f"{TOKEN_VARIABLE} contains characters that are not allowed in a header", retry=True)
        headers["Authorization"] = f"Bearer {token}"
    return headers


def opener() -> urllib.request.OpenerDirector:
    """Return what opens URLs without following redirects; a response must arrive completely within the timeout."""
    return urllib.request.build_opener(_NoRedirect(), HttpHandler(), HttpsHandler())


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: a redirected POST would become a GET without its body, and take the token to another server."""

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage) -> None:
        """Leave it to the default, an `HTTPError`, before `Location` is parsed: that raises a ValueError if it is no URL."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _refused(name: str, error: urllib.error.HTTPError) -> SendError:
    hint = {401: f"; check {TOKEN_VARIABLE}", 403: f"; check {TOKEN_VARIABLE}", 404: "; check the URL"}.get(error.code, "")
    target = redirect_target(name, error)
    if target is not None:
        hint = f"; use {target}" if target else "; it redirects to an address that cannot be read"
    body = _start_of(error.fp)
    return SendError(
        f"{name} answered {error.code} {error.reason}{explained(body)}{hint}",
        retry=error.code not in NEVER_RETRIED,
        too_large=error.code == 413,
        unreadable=_said(body).get("code") == "invalid_events",
        retry_after_s=_retry_after_s(error.headers.get("Retry-After")),
    )


def redirect_target(url: str, error: urllib.error.HTTPError) -> str | None:
    """Return where a redirect of `url` leads, in a readable form; empty if that is no URL, None for another response."""
    location = error.headers.get("Location")
    if not (300 <= error.code < 400 and location):
        return None
    try:
        return shown(urljoin(url, location))
    except ValueError:
        return ""


def explained(body: bytes) -> str:
    """Return what the service says is wrong and how to fix it, as the end of a message; empty if something else answered."""
    said = _said(body)
    if not said.keys() >= {"message", "fix"}:
        return ""
    text = f"{said['message']}; {said['fix']}"
    return ": " + " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MAX_SHOWN]


def _said(body: bytes) -> dict[str, Any]:
    """Return the service's description of an error, empty if something else answered."""
    try:
        said = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _start_of(answer: object) -> bytes:
    """Return the start of a body, empty if it cannot be read: the status has already said what happened to the events."""
    try:
        # One read: more than this is not needed, however long the body is.
        return answer.read1(_MAX_ANSWER_BYTES) if isinstance(answer, http.client.HTTPResponse) else b""
    except (OSError, http.client.HTTPException):
        return b""


def _retry_after_s(text: str | None) -> float | None:
    """Parse Retry-After in seconds; the rare date form is ignored in favour of the back-off."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(float(text), _MAX_RETRY_AFTER_S)
