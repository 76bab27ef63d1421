"""Secrets of transports: from the environment or from a file it names, never from a URL."""

from __future__ import annotations

import os
from pathlib import Path

from sources.client.transports.base import SendError


def secret(name: str) -> str | None:
    """The value of the variable `name`, else the content of the file named by `name`_FILE, else None.

    Read at each use, so that a rotated file takes effect. Raises `SendError` (to be retried) when the file
    cannot be read.
    """
    value = os.environ.get(name)
    if value:
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SendError(f"{name}_FILE: cannot read {path}: {error.strerror}", retry=True) from error
