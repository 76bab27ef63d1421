"""Errors that keep a broker from being watched."""

from __future__ import annotations


class BrokerUnavailable(Exception):
    """A broker cannot be reached, refuses the login or refuses a subscription.

    `address` is the address tried, `reason` the error, `remedy` how to fix it, None when not
    known. `is_closed`: nothing listens there, as at a slave that has not taken over.
    """

    def __init__(self, address: str, reason: str, remedy: str | None = None, *, is_closed: bool = False) -> None:
        self.address = address
        self.reason = reason
        self.remedy = remedy
        self.is_closed = is_closed
        super().__init__(f"{address}: {reason}" + (f" ({remedy})" if remedy else ""))
