"""Error responses of the service: JSON with the problem and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

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
            "the page is at /, metrics at /metrics, the API at /api/v1/queues, /api/v1/signals, /api/v1/search, "
            "/api/v1/explain/NAME and /api/v1/events",
        ).response()
    if error.status_code == 405:
        allowed = dict(error.headers or {}).get("Allow", "another method")
        return ApiError(
            405,
            "method_not_allowed",
            f"{request.method} is not possible at {path}",
            f"use {allowed}",
            headers={"Allow": allowed},
        ).response()
    return ApiError(error.status_code, "refused", str(error.detail), "see the message").response()


def internal_error() -> Response:
    """Handle unexpected errors; the log has the traceback."""
    return ApiError(
        500,
        "internal",
        "the service failed to answer; nothing was changed",
        "look for the traceback in queuewatch's log and report it",
    ).response()
