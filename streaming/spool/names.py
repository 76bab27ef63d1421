"""Names of files as text for logs, the quarantine and Arrow, whatever their bytes are."""

from __future__ import annotations

import os


def printable(name: str) -> str:
    """Return a name or path with a replacement character for every byte that is not UTF-8.

    It is for reading only: the file is opened, planned and removed by the name Python gave it, which keeps those bytes.
    """
    return os.fsencode(name).decode("utf-8", "replace")
