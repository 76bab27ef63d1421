"""Why a broker cannot be watched."""

from __future__ import annotations


class BrokerUnavailable(Exception):
    """A broker cannot be reached, refuses the login or refuses a subscription.

    `address` is where it was tried, `reason` what was said, `remedy` what to do about it, None when not
    known."""

    def __init__(self, address: str, reason: str, remedy: str | None = None) -> None:
        self.address = address
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{address}: {reason}" + (f" ({remedy})" if remedy else ""))
