"""Failed calls to SQS, and which of them to log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from queuewatch.tls import HTTP_FIX, is_plain_text
from sources.sqs.answers import BadAnswer

_GONE: Final = frozenset(("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"))
_THROTTLED: Final = frozenset(
    ("RequestThrottled", "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded")
)
_DENIED: Final = frozenset(("AccessDenied", "AccessDeniedException"))
_EXPIRED_CREDENTIALS: Final = frozenset(("ExpiredToken", "ExpiredTokenException"))
_UNKNOWN_CREDENTIALS: Final = frozenset(("InvalidClientTokenId", "UnrecognizedClientException"))
"""Also the answer of a region that the account has not enabled, to credentials that are valid in the others."""
_NO_CREDENTIALS: Final = frozenset(("NoCredentialsError", "PartialCredentialsError"))
_LOGGED_OUT: Final = frozenset(("UnauthorizedSSOTokenError", "SSOTokenLoadError", "TokenRetrievalError"))
_LOG_EVERY_S: Final = 300.0


@dataclass(frozen=True)
class Problem:
    """A failed call; it does not affect other queues."""

    queue: str
    call: str
    code: str
    message: str
    url: str = ""
    """The queue's URL, where it matters: queues of several accounts may have one name."""
    unanswered: bool = False
    """Whether SQS could not be reached, or did not answer in time."""
    server_error: bool = False
    """Whether it answered that it failed itself (5xx): rights would not help."""

    @classmethod
    def of(cls, queue: str, call: str, error: ClientError | BotoCoreError | BadAnswer, url: str = "") -> Problem:
        """Convert the error of a call."""
        if isinstance(error, ClientError):
            answered = error.response.get("Error", {})
            failed = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= HTTPStatus.INTERNAL_SERVER_ERROR
            return cls(queue, call, str(answered.get("Code")), str(answered.get("Message")), url, server_error=failed)
        return cls(queue, call, type(error).__name__, str(error), url, is_unanswered(error))

    @property
    def throttled(self) -> bool:
        """Whether fewer calls would help."""
        return self.code in _THROTTLED

    @property
    def gone(self) -> bool:
        """Whether the queue no longer exists."""
        return self.code in _GONE

    def __str__(self) -> str:
        return f"{self.queue}: {self.call}: {self.code}: {self.message}{_fix(self, 'it')}"


def is_unanswered(error: Exception) -> bool:
    """Return whether the service could not be reached, or did not answer in time."""
    return isinstance(error, (ConnectionError, HTTPClientError))


def _fix(problem: Problem, where: str) -> str:
    if problem.code in _DENIED:
        return f"; allow sqs:{problem.call} on {where}, see iam-policy.json"
    if problem.code in _EXPIRED_CREDENTIALS:
        return "; renew the collector's credentials, or use a role, whose credentials are renewed by themselves"
    if problem.code in _UNKNOWN_CREDENTIALS:
        return (
            "; if the collector's credentials are valid in other regions, enable this one in the account, or remove it from "
            "collect.sqs.regions; otherwise renew them"
        )
    if problem.code in _NO_CREDENTIALS:
        return (
            "; give the collector a role, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or name a "
            "profile in collect.sqs.profile"
        )
    if problem.code in _LOGGED_OUT:
        return "; run `aws sso login`, or give the collector a role"
    if problem.code == "SSLError" and is_plain_text(problem.message):
        return f"; {HTTP_FIX}, in collect.sqs.endpoint_url or AWS_ENDPOINT_URL_SQS"
    return ""


class LoggedProblems:
    """Which problems were logged lately: one that lasts is logged every five minutes. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._logged_s: dict[tuple[str, str, str, str], float] = {}

    def due(self, problems: Iterable[Problem], now_s: float) -> list[str]:
        """Return the lines to log at `now_s`, one for each call and error code.

        Problems that were logged long ago are forgotten: their queues may be gone.
        """
        self._logged_s = {key: logged_s for key, logged_s in self._logged_s.items() if now_s - logged_s < _LOG_EVERY_S}
        alike: dict[tuple[str, str], list[Problem]] = {}
        for problem in problems:
            key = (problem.queue, problem.url, problem.call, problem.code)
            if key not in self._logged_s:
                self._logged_s[key] = now_s
                alike.setdefault((problem.call, problem.code), []).append(problem)
        return [_line(found) for found in alike.values()]

    def __len__(self) -> int:
        return len(self._logged_s)


def _line(alike: list[Problem]) -> str:
    first = alike[0]
    if len(alike) == 1:
        return str(first)
    queues = f"{len(alike)} queues, for example {first.queue}, {alike[1].queue}"
    return f"{first.call}: {first.code}: {queues}: {first.message}{_fix(first, 'them')}"
