"""Error responses of the service: JSON with the problem and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sinks.http.responses import json_response


class ApiError(Exception):
    """An error response. `code` is for programs, `message` and `fix` are for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        fix: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fix = fix
        self.headers = dict(headers or {})
        self.details = details

    def response(self) -> Response:
        """Return the HTTP response."""
        error = {"code": self.code, "message": self.message, "fix": self.fix, **self.details}
        return json_response({"error": error}, status=self.status, headers=self.headers)


async def answer_api_error(_: Request, error: Exception) -> Response:
    """Handle errors raised by the endpoints."""
    assert isinstance(error, ApiError)
    return error.response()


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Handle requests that the router refuses: an unknown path or a wrong method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return ApiError(
            404,
            "not_found",
            f"there is nothing at {path}",
            f"use {', '.join(_paths(request))}",
        ).response()
    if error.status_code == 405:
        allowed = dict(error.headers or {}).get("Allow", "another method")
        return ApiError(
            405,
            "method_not_allowed",
            f"{request.method} is not allowed at {path}",
            f"use {allowed}",
            headers={"Allow": allowed},
        ).response()
    return ApiError(error.status_code, "refused", str(error.detail), "see the message").response()


def _paths(request: Request) -> list[str]:
    """Return the paths of the service, without the page's own files and a second spelling with a slash at the end."""
    paths = [re.sub(r":\w+}", "}", route.path) for route in request.app.routes if isinstance(route, Route)]
    return [path for path in paths if path == "/" or not (path.startswith("/assets/") or path.endswith("/"))]


def internal_error() -> Response:
    """Handle unexpected errors; the log has the traceback."""
    return ApiError(
        500,
        "internal",
        "the service failed to answer; nothing was changed",
        "look for the traceback in queuewatch's log and report it",
    ).response()
