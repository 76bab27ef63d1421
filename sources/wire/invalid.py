"""Describe events that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Reason = Literal[
    "empty",
    "not_json",
    "not_arrow",
    "not_an_object",
    "bad_text",
    "too_deep",
    "missing_field",
    "unknown_type",
    "wrong_type",
    "unsupported_version",
    "out_of_range",
    "too_long",
    "too_large",
]
REASONS: Final[tuple[str, ...]] = get_args(Reason)

RAW_LIMIT: Final = 4096
"""The most bytes of an invalid event that are kept for inspection."""

MOST_KEPT: Final = 1_000
"""The most invalid events of one call that are kept for inspection; all are counted."""


@dataclass(frozen=True)
class InvalidEvent:
    """One event that was refused.

    `reason` is a stable slug (safe as a metric label); `detail` names the field and the fix; `record` is the
    index of the value passed to `decode_records`; `line` is the 1-based position of the event in that value
    (line, array element or Arrow row), None when the value as a whole could not be read; `raw` is the event's
    bytes, cut at `RAW_LIMIT`.
    """

    reason: Reason
    detail: str
    record: int
    line: int | None
    raw: bytes


class RefusalError(ValueError):
    """Raised while reading one event; becomes an `InvalidEvent`."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail
