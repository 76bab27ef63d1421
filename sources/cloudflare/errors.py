"""What can go wrong with Cloudflare's API, each with what to do about it."""

from __future__ import annotations


class ApiError(Exception):
    """A request that brought nothing. `what` is the request in words, never with the token."""

    def __init__(self, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem
        super().__init__(f"{what}: {problem}")


class Unauthorized(ApiError):
    """401 or 403: the token is wrong, expired, or lacks a permission."""


class NotFound(ApiError):
    """404: the account or the queue does not exist, or the path is not known there."""


class RateLimited(ApiError):
    """429: too many requests; `retry_after_s` is how long the API asks to wait, None when it does not say."""

    def __init__(self, what: str, retry_after_s: float | None) -> None:
        self.retry_after_s = retry_after_s
        told = "" if retry_after_s is None else f", asks to wait {retry_after_s:.0f} s"
        super().__init__(what, f"too many requests{told}")


class Unavailable(ApiError):
    """The network, a 5xx answer, or no answer in time: the same request may succeed later."""


class BadAnswer(ApiError):
    """An answer that is not what the API's schema promises: no JSON, `success: false`, a field of another type."""
