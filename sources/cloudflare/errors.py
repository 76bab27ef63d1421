"""Errors of Cloudflare's API, each with its remedy."""

from __future__ import annotations


class ApiError(Exception):
    """A failed request. `what` describes the request, never with the token."""

    def __init__(self, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem
        super().__init__(f"{what}: {problem}")


class Unauthorized(ApiError):
    """401 or 403: the token is wrong, expired, or lacks a permission."""


class NotFound(ApiError):
    """404: the account, the queue or the path does not exist."""


class RateLimited(ApiError):
    """429: too many requests; `retry_after_s` is how long the API asks to wait, None when it gives no time."""

    def __init__(self, what: str, retry_after_s: float | None) -> None:
        self.retry_after_s = retry_after_s
        wait = "" if retry_after_s is None else f", asks to wait {retry_after_s:.0f} s"
        super().__init__(what, f"too many requests{wait}")


class Unavailable(ApiError):
    """The network, a 5xx answer, or no answer in time: the same request may succeed later."""


class BadAnswer(ApiError):
    """An answer that does not match the API's schema: not JSON, `success: false`, a field of another type."""
