"""The Host header, which tells whether a request may be from a web page that has changed the address of its own name.

The browser takes such a request for one to the page's own server, so nothing but the name tells it from any other.
"""

from __future__ import annotations

import ipaddress
import socket
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


def host_name(header: str) -> str | None:
    """Return the name or address in a Host header in lower case, without the port; None if it is invalid."""
    header = header.strip().lower()
    if header.startswith("["):
        address, bracket, port = header[1:].partition("]")
        return address if bracket and (not port or port.startswith(":")) else None
    name, _, _ = header.partition(":")
    return name.removesuffix(".") or None


def is_private(name: str) -> bool:
    """Return whether no foreign page can have been loaded from a host of this name, as `host_name` returns it.

    That is an IP address, this machine's own name, a name without a dot, such as that of a container or a Kubernetes service, or
    a name below a suffix that cannot be registered.
    """
    if "." not in name or name.endswith(_PRIVATE_SUFFIXES) or name == socket.gethostname().lower().removesuffix("."):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
