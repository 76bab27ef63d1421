"""Decides by the Host header whether a request may be from a web page that has changed the address of its own name.

The browser takes such a request for one to the page's own server, so nothing but the name tells it from that of an application.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

_PRIVATE_SUFFIXES: Final = (
    ".localhost",
    ".local",
    ".internal",
    ".svc",
    ".svc.cluster.local",
    ".lan",
    ".home.arpa",
    ".test",
    ".invalid",
)
"""Names below these suffixes cannot be registered, so no foreign page can have one."""


class HostNames:
    """The names under which this proxy may be called.

    That is any address, any name that cannot be registered on the Internet, such as `localhost` or that of a container or a
    Kubernetes service, this machine's name, and the names that are allowed; `*` allows all.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = {name.lower().removesuffix(".") for name in (*allowed, socket.gethostname())}
        self._any = "*" in self._allowed

    def refusal(self, header: str) -> str | None:
        """Return why a request with this Host header is refused, or None."""
        name = _name(header)
        if self._any or (name and (name in self._allowed or _is_private(name))):
            return None
        return (
            f"this proxy does not go by the name {header[:200]!r}; if it is the application's name for it, add --allow-host NAME"
        )


def _name(header: str) -> str:
    """Return the name or address in a Host header, without the port; empty if it is invalid."""
    header = header.strip().lower()
    if header.startswith("["):
        address, bracket, port = header[1:].partition("]")
        return address if bracket and (not port or port.startswith(":")) else ""
    return header.partition(":")[0].removesuffix(".")


def _is_private(name: str) -> bool:
    if "." not in name or name.endswith(_PRIVATE_SUFFIXES):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
