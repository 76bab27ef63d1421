"""Cloudflare's Queues API over HTTP: each call makes one request and returns its parsed answer or raises `ApiError`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from sources.cloudflare import answers
from sources.cloudflare.budget import Budget
from sources.cloudflare.errors import BadAnswer, NotFound, RateLimited, Unauthorized, Unavailable
from sources.cloudflare.settings import Consumer

PER_PAGE: Final = 100
MAX_ANSWER_BYTES: Final = 16_000_000
COMPLETE_WITHIN_S: Final = 60.0
"""The timeout is for each read; an answer that trickles in must not hold the collector."""
_NOT_HERE: Final = frozenset({404, 405, 410})


class CloudflareApi:
    """One account as seen with one token. Calls raise only `ApiError`; they do not wait for the budget.

    `token` is called for each request, so that a rotated token takes effect.
    """

    def __init__(
        self, base_url: str, account_id: str, token: Callable[[], str], *, timeout_s: float, budget: Budget | None = None
    ) -> None:
        self._account = f"/accounts/{quote(account_id, safe='')}"
        self._token = token
        self._budget = budget
        # A redirect would send the token to another server.
        self._client = httpx.Client(base_url=base_url, timeout=timeout_s, follow_redirects=False)
        self._sampling = "peek"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def page(self, number: int) -> answers.Page:
        """Request one page of the account's queues, counted from 1."""
        what = f"list of queues, page {number}"
        return answers.page_of(what, self._get(what, "/queues", {"page": number, "per_page": PER_PAGE}))

    def consumers(self, queue_id: str) -> tuple[Consumer, ...]:
        """Request a queue's consumers and their settings."""
        what = "consumers"
        return answers.consumers_of(what, self._get(what, f"/queues/{quote(queue_id, safe='')}/consumers"))

    def backlog(self, queue_id: str) -> answers.Backlog:
        """Request how many messages wait, and since when."""
        what = "metrics"
        return answers.backlog_of(what, self._get(what, f"/queues/{quote(queue_id, safe='')}/metrics"))

    def sample(self, queue_id: str, size: int) -> tuple[answers.SampledMessage, ...]:
        """Request a sample of a queue's messages, which stay in it: nothing is leased, retried or acknowledged.

        The call was first named `preview` and is now `peek`; whichever exists is used.
        """
        what = "sample of messages"
        messages = f"/queues/{quote(queue_id, safe='')}/messages"
        body = {"batch_size": size}
        try:
            answer = self._post(what, f"{messages}/{self._sampling}", body)
        except NotFound:
            # A queue that was just deleted gives the same answer: then the other call does not exist either.
            other = "preview" if self._sampling == "peek" else "peek"
            answer = self._post(what, f"{messages}/{other}", body)
            self._sampling = other
        return answers.sample_of(what, answer)

    def pull(self, queue_id: str, size: int, lease_s: float) -> tuple[answers.PulledMessage, ...]:
        """Lease some messages; those not acknowledged within `lease_s` come again."""
        what = "pull"
        body = {"batch_size": size, "visibility_timeout_ms": round(lease_s * 1000)}
        return answers.pulled_of(what, self._post(what, f"/queues/{quote(queue_id, safe='')}/messages/pull", body))

    def acknowledge(self, queue_id: str, leases: Iterable[str]) -> int | None:
        """Acknowledge the messages of leases; return how many were acknowledged, when the answer reports it."""
        what = "acknowledgement"
        body = {"acks": [{"lease_id": lease} for lease in leases], "retries": []}
        return answers.acknowledged_of(what, self._post(what, f"/queues/{quote(queue_id, safe='')}/messages/ack", body))

    def _get(self, what: str, path: str, query: dict[str, int] | None = None) -> Any:
        return self._request(what, "GET", path, query=query)

    def _post(self, what: str, path: str, body: dict[str, Any]) -> Any:
        return self._request(what, "POST", path, body=body)

    def _request(
        self, what: str, method: str, path: str, *, query: dict[str, int] | None = None, body: dict[str, Any] | None = None
    ) -> Any:
        headers = {"authorization": f"Bearer {self._bearer(what)}", "accept": "application/json"}
        request = self._client.build_request(method, self._account + path, params=query, json=body, headers=headers)
        end_s = time.monotonic() + COMPLETE_WITHIN_S
        try:
            response = self._client.send(request, stream=True)
            try:
                content = _read(what, response, end_s)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise Unavailable(what, f"no answer: {error or type(error).__name__}") from error
        if self._budget is not None:
            self._budget.learn(response.headers)
        _check_status(what, response, content)
        return _json(what, content)

    def _bearer(self, what: str) -> str:
        try:
            token = self._token()
        except ValueError as error:
            raise Unauthorized(what, str(error)) from error
        # httpx would include the header's value in its error.
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Unauthorized(what, "the token has characters no token has; check for quotes and line ends")
        return token


def _read(what: str, response: httpx.Response, end_s: float) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise BadAnswer(what, f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > end_s:
            raise Unavailable(what, f"the answer is not complete after {COMPLETE_WITHIN_S:g} s")
    return bytes(content)


def _check_status(what: str, response: httpx.Response, content: bytes) -> None:
    status = response.status_code
    if response.is_success:
        return
    problem = f"{status} {response.reason_phrase}{_reason(content)}"
    if status in (401, 403):
        raise Unauthorized(what, problem)
    if status == 429:
        raise RateLimited(what, _seconds(response.headers.get("retry-after")))
    if status in _NOT_HERE:
        raise NotFound(what, problem)
    if status >= 500:
        raise Unavailable(what, problem)
    raise BadAnswer(what, problem)


def _reason(content: bytes) -> str:
    """Return an error answer's description; many are HTML pages without any."""
    try:
        return f": {answers.error_text(json.loads(content))}"
    except (ValueError, RecursionError):
        return ""


def _json(what: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        start = content[:40].decode("utf-8", "replace")
        raise BadAnswer(what, f"the answer is not JSON ({error}); it begins {start!r}") from error


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        return None
