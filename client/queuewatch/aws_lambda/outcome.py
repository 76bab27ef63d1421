"""The outcome of a batch in the event source mapping, derived from how its invocation ended. Pure.

The rules are those of the AWS Lambda developer guide, "Handling errors for an SQS event source".
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NoReturn

MAX_RESPONSE_BYTES: Final = 6_291_556
"""Maximum size of a synchronous invocation's response; a larger one is an error."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a batch: all deleted, all returned to the queue, or only those in `back` returned.

    `whole` says that the batch failed as a whole. A message that comes back does so when its visibility timeout ends.
    """

    reason: str
    whole: bool = False
    back: frozenset[str] = frozenset()
    """Message ids named in `batchItemFailures`; empty if the batch ended as a whole."""


RETURNED: Final = Outcome("returned")


def raised(error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised: every message comes back. The error's text may contain message data."""
    return Outcome(f"raised {type(error).__name__}", whole=True)


def timed_out() -> Outcome:
    """Return the outcome of a function that timed out: every message comes back."""
    return Outcome("timed out", whole=True)


def returned(response: str | bytes, message_ids: Collection[str], *, reports_failures: bool) -> Outcome:
    """Return the outcome of a handler that returned; `response` is what the runtime posts."""
    if _is_too_large(response):
        return Outcome("response too large", whole=True)
    if not reports_failures:
        return RETURNED
    try:
        answer = json.loads(response, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Outcome("invalid response", whole=True)
    failures = answer.get("batchItemFailures") if isinstance(answer, dict) else None
    if failures is None or failures == []:
        return RETURNED
    named = _named(failures, message_ids)
    if named is None:
        return Outcome("invalid batchItemFailures", whole=True)
    return Outcome("named in batchItemFailures", back=named)


def _is_too_large(response: str | bytes) -> bool:
    """Return whether the response has too many bytes in UTF-8, in which a character has at most four."""
    if isinstance(response, bytes) or len(response) * 4 <= MAX_RESPONSE_BYTES:
        return len(response) > MAX_RESPONSE_BYTES
    return len(response.encode(errors="surrogatepass")) > MAX_RESPONSE_BYTES


def _named(failures: Any, message_ids: Collection[str]) -> frozenset[str] | None:
    """Return the named ids, or None if an entry makes the whole response invalid."""
    if not isinstance(failures, list):
        return None
    known = frozenset(message_ids)
    named = set()
    for entry in failures:
        identifier = entry.get("itemIdentifier") if isinstance(entry, dict) else None
        if not isinstance(identifier, str) or identifier not in known:
            return None
        named.add(identifier)
    return frozenset(named)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
