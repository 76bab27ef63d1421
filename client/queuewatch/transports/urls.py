"""Splits the URLs of destinations, with errors that name what is wrong."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from queuewatch.transports.secrets import shown


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL. Raises `ValueError`, for example where brackets are missing around an IPv6 address."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ValueError(f"{shown(url)!r} is not a URL: {error}") from None


def check_port(address: str, parts: SplitResult) -> None:
    """Raise `ValueError`, which names the `address`, if its port is none."""
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"{address!r}: the port must be a number up to 65535") from None
