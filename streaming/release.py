"""The running release of the service."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def own_version() -> str:
    """Return the version of the installed service, `unknown` where it is not installed."""
    try:
        return metadata.version("queuewatch-service")
    except metadata.PackageNotFoundError:
        return "unknown"
