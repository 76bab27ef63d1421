"""The SQS endpoints the proxy forwards to. It signs for these and for no others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.regions import EndpointResolver
from botocore.utils import ensure_boolean

from queuewatch.proxy.signing import SERVICE

_SCOPE: Final = re.compile(r"Credential=[^/,\s]+/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")

_VARIANTS: Final = ("use_fips_endpoint", "use_dualstack_endpoint")


class NotConfigured(Exception):
    """A call is for a service or region that this proxy does not sign for; the text says how to change that."""


@dataclass
class Upstream:
    """One SQS endpoint."""

    region: str
    origin: str
    """`https://sqs.eu-west-1.amazonaws.com`, without a trailing slash."""
    queue_origin: str = ""
    """The prefix of its queue URLs, learned from its responses; `origin` until then."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.origin)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.origin!r} is not an endpoint; use https://host[:port]")
        if "@" in parts.netloc or parts.query or parts.fragment or parts.path.strip("/"):
            raise ValueError(f"the endpoint at {parts.hostname} must be only https://host[:port]")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.queue_origin = self.queue_origin or self.origin
        default = {"http": 80, "https": 443}[parts.scheme]
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.host = host if parts.port in (None, default) else f"{host}:{parts.port}"


class Upstreams:
    """Chooses the endpoint of a call by the region that the application signed it for."""

    def __init__(self, upstreams: Sequence[Upstream], *, any_region: bool = False) -> None:
        """The first endpoint gets unsigned calls. With `any_region` it also gets calls for all other regions."""
        if not upstreams:
            raise ValueError("no SQS endpoint: give --region or --endpoint")
        self._default = upstreams[0]
        self._any_region = any_region
        self._by_region = {upstream.region: upstream for upstream in upstreams}
        self.all = tuple(upstreams)

    def choose(self, authorization: str | None) -> Upstream:
        """Return the endpoint for a call with this Authorization header, or part of one. Raises `NotConfigured`."""
        scope = _SCOPE.search(authorization) if authorization else None
        if scope is None:
            return self._default
        region, service = scope[1], scope[2]
        if service != SERVICE:
            raise NotConfigured(f"this call is signed for {service}, and queuewatch-proxy forwards to SQS only")
        if self._any_region:
            return self._default
        found = self._by_region.get(region)
        if found is None:
            known = ", ".join(self._by_region)
            raise NotConfigured(f"queuewatch-proxy is configured for {known}, not for {region}: add --region {region}")
        return found


def upstream_of_region(session: Any, region: str) -> Upstream:
    """Return AWS' endpoint of a region from botocore's table, by the session's settings for FIPS and dual-stack endpoints.

    Raises `ValueError` if there is none.
    """
    # Use the table, because a client would use AWS_ENDPOINT_URL_SQS, which may be this proxy's own address.
    fips, dual_stack = (ensure_boolean(session.get_config_variable(name) or False) for name in _VARIANTS)
    found = EndpointResolver(session.get_data("endpoints")).construct_endpoint(
        SERVICE, region, use_fips_endpoint=fips, use_dualstack_endpoint=dual_stack
    )
    if not found or not found.get("hostname"):
        kind = "".join(f" and {name}" for name, wanted in zip(_VARIANTS, (fips, dual_stack), strict=True) if wanted)
        raise ValueError(f"no endpoint of SQS is known for {region!r}{kind}; give --endpoint {region}=https://…")
    return Upstream(region, f"https://{found['hostname']}")
