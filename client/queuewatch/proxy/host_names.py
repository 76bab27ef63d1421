"""Decides by the Host header whether a request may be from a web page that has changed the address of its own name."""

from __future__ import annotations

from collections.abc import Iterable

from queuewatch.host_header import host_name, is_private


class HostNames:
    """The names under which this proxy may be called.

    That is any address, any name that cannot be registered on the Internet, such as `localhost` or that of a container or a
    Kubernetes service, this machine's name, and the names that are allowed; `*` allows all.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = {name.lower().removesuffix(".") for name in allowed}
        self._any = "*" in self._allowed

    def refusal(self, header: str) -> str | None:
        """Return why a request with this Host header is refused, or None."""
        name = host_name(header)
        if self._any or (name is not None and (name in self._allowed or is_private(name))):
            return None
        return (
            f"this proxy does not go by the name {header[:200]!r}; if it is the application's name for it, add --allow-host NAME"
        )
