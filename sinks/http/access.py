"""Access control: the Host header, and credentials for the page with its API and for the metrics."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from queuewatch.host_header import host_name, is_private
from sinks.http.errors import ApiError

OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})
"""Paths for load balancers and kubelets, which send no credentials or host name. They reveal only a state."""
INGEST_PATHS = ("/api/v1/events", "/api/v1/events/")
"""Senders may add a slash at the end."""
METRICS_PATHS = frozenset({"/metrics", "/metrics/native"})


@dataclass(frozen=True)
class Credentials:
    """The required credentials: a user's password (Basic), or a token (Bearer). With neither, everybody has access."""

    username: str | None = None
    password: str | None = None
    token: str | None = None
    fix: str = "send those of http.auth, or for /metrics those of http.metrics_auth"
    """What a refusal tells to do."""

    @property
    def needed(self) -> bool:
        """Whether credentials are required."""
        return self.token is not None or self.password is not None

    def check(self, authorization: str) -> None:
        """Raise ApiError 401 if the header `Authorization` does not contain them."""
        if not self.needed:
            return
        scheme, _, given = authorization.partition(" ")
        scheme, given = scheme.lower(), given.strip()
        if scheme == "bearer" and self.token is not None and _same(given, self.token):
            return
        if scheme == "basic" and self.password is not None and self._is_user(given):
            return
        raise ApiError(
            401,
            "unauthorized",
            "the credentials are wrong" if given else "credentials are needed",
            self.fix,
            headers={"WWW-Authenticate": ", ".join(self._challenges(scheme, given))},
        )

    def _is_user(self, given: str) -> bool:
        try:
            user, colon, password = base64.b64decode(given, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return False
        # Both are compared, so that the timing does not reveal which was wrong.
        right = (_same(user, self.username or ""), _same(password, self.password or ""))
        return bool(colon) and all(right)

    def _challenges(self, scheme: str, given: str) -> list[str]:
        challenges = []
        if self.password is not None:
            challenges.append('Basic realm="queuewatch", charset="UTF-8"')
        if self.token is not None:
            wrong = ', error="invalid_token"' if scheme == "bearer" and given else ""
            challenges.append(f'Bearer realm="queuewatch"{wrong}')
        return challenges


@dataclass(frozen=True)
class Access:
    """The rules for every request."""

    page: Credentials = Credentials()
    """Credentials for the page and its API."""
    metrics: Credentials = Credentials()
    hosts: Sequence[str] = ()
    """Additional host names of this service; `*` for any."""

    def check(self, path: str, host: str, authorization: str) -> None:
        """Raise ApiError 421 for a foreign Host, 401 without the credentials. Ingest checks its own token itself."""
        # A route is found by a pattern with `$`, which also matches before a line break at the end of the path.
        path = path.removesuffix("\n")
        if path in OPEN_PATHS:
            return
        self._check_host(host)
        if path in METRICS_PATHS:
            self.metrics.check(authorization)
        elif path not in INGEST_PATHS:
            self.page.check(authorization)

    def _check_host(self, header: str) -> None:
        name = host_name(header)
        if name is not None and (is_private(name) or "*" in self.hosts or name in {h.lower() for h in self.hosts}):
            return
        raise ApiError(
            421,
            "unknown_host",
            f"this service does not go by the name {(name or header)[:200]!r}",
            "add the name to http.allowed_hosts, or use an address of this machine",
        )


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())
