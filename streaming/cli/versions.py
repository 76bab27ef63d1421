"""Version numbers of the installed packages."""

from __future__ import annotations

import platform
from importlib import metadata

from streaming.release import own_version

_SHOWN = ("pyspark", "pyarrow", "pandas", "kafka-python", "boto3", "stomp.py")


def all_versions() -> list[tuple[str, str]]:
    """Return name and version of queuewatch, Python and the main dependencies that are installed."""
    from sources.wire.scan import is_compiled

    found = [("queuewatch", own_version()), ("python", platform.python_version())]
    for name in _SHOWN:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return [
        *found,
        (
            "json scan",
            "compiled" if is_compiled() else "none, JSON parsing is slower: install gcc, then reinstall queuewatch-service",
        ),
    ]
