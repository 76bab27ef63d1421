"""Secrets of transports, from the environment or a file it names; never from a URL, and never logged."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from queuewatch.transports.base import SendError

TOKEN_VARIABLE: Final = "QUEUEWATCH_TOKEN"
USERNAME_VARIABLE: Final = "QUEUEWATCH_KAFKA_USERNAME"
PASSWORD_VARIABLE: Final = "QUEUEWATCH_KAFKA_PASSWORD"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?::/*|//)")
"""Also one without its colon or its slashes."""

_HIDDEN: Final = (TOKEN_VARIABLE, PASSWORD_VARIABLE)


def secret(name: str) -> str | None:
    """Return the value of the variable `name`, else the content of the file named by `name`_FILE, else None.

    Surrounding white space, which a secret store or an editor may add, is removed. The value is read at each use, so that a
    rotated file takes effect. Raises `SendError` (to be retried) if the file cannot be read.
    """
    value = os.environ.get(name, "").strip()
    if value:
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SendError(f"{name}_FILE: cannot read {path}: {reason}", retry=True) from None


def redact(text: str) -> str:
    """Return a text for logging, without secrets that a library may have put into its error."""
    for name in _HIDDEN:
        try:
            value = secret(name)
        except SendError:
            continue
        if value:
            # Both the plain value and the form that `repr` gives.
            text = text.replace(value, "***").replace(repr(value)[1:-1], "***")
    return text


def shown(url: str) -> str:
    """Return a readable destination, without user, password and option values.

    A password in a mistyped URL may contain any character, also one that ends the name of the host. So everything before the last
    `@` is hidden, and what follows it too if that could be the rest of an option's value.
    """
    login, at, place = url.rpartition("@")
    if at:
        scheme = _SCHEME.match(login)
        after = "" if "?" in login else f"@{re.split('[?#]', place)[0]}"
        return f"{scheme[0] if scheme else ''}***{after}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    return parts._replace(query="", fragment="").geturl() or url.partition("?")[0]
