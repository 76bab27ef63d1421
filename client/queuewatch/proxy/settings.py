"""Validates the command line and the environment."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from queuewatch.proxy.options import address
from queuewatch.proxy.upstreams import Upstream, Upstreams, upstream_of_region


@dataclass(frozen=True)
class Settings:
    """The settings of a proxy."""

    host: str
    port: int
    allowed_hosts: Sequence[str]
    upstreams: Upstreams
    to: str | None
    consumer: str
    scope: str | None
    lineage_attribute: str | None
    rewrite_queue_urls: bool
    max_handles: int
    max_buffered: int
    drain_s: float


def settings(given: argparse.Namespace, environment: Mapping[str, str], session: Any) -> Settings:
    """Return validated settings. Raises `ValueError`, which says what is wrong."""
    host, port = address(given.listen)
    if not given.allow_remote and not _is_loopback(host):
        raise ValueError(
            f"{host} is not a loopback address: anyone who can reach it could use this proxy's credentials; add --allow-remote "
            "if only your own applications do"
        )
    upstreams = _upstreams(given, environment, session)
    for upstream in upstreams.all:
        parts = urlsplit(upstream.origin)
        if port and parts.port == port and _is_loopback(parts.hostname or "") and _is_loopback(host):
            raise ValueError(f"{upstream.origin} is this proxy's own address")
    if given.max_handles < 1 or given.max_buffered < 1:
        raise ValueError("--max-handles and --max-buffered must be positive numbers")
    if given.drain_s < 0:
        raise ValueError("--drain-s must not be negative")
    return Settings(
        host=host,
        port=port,
        allowed_hosts=_listed(given.allow_host, environment.get("QUEUEWATCH_PROXY_ALLOW_HOSTS")),
        upstreams=upstreams,
        to=given.to,
        consumer=given.consumer,
        scope=given.scope,
        lineage_attribute=given.lineage_attribute,
        rewrite_queue_urls=not given.keep_queue_urls,
        max_handles=given.max_handles,
        max_buffered=given.max_buffered,
        drain_s=given.drain_s,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _upstreams(given: argparse.Namespace, environment: Mapping[str, str], session: Any) -> Upstreams:
    regions = _listed(given.region, environment.get("QUEUEWATCH_PROXY_REGIONS"))
    endpoints = _listed(given.endpoint, environment.get("QUEUEWATCH_PROXY_ENDPOINTS"))
    # The SDKs' variable first, because botocore reads only AWS_DEFAULT_REGION.
    default = environment.get("AWS_REGION") or session.get_config_variable("region")
    named: dict[str, Upstream] = {}
    any_region = len(endpoints) == 1 and "=" not in endpoints[0] and not regions
    for endpoint in endpoints:
        region, separator, url = endpoint.rpartition("=")
        region = region if separator else (regions[0] if len(regions) == 1 else default)
        if not region:
            raise ValueError(f"the region of {endpoint} is not known: write REGION={endpoint}, or set AWS_REGION")
        named[region] = Upstream(region, url)
    if not regions and not endpoints:
        if not default:
            raise ValueError("no region: give --region, or set AWS_REGION")
        regions = [default]
    for region in regions:
        if region not in named:
            named[region] = upstream_of_region(session, region)
    ordered = sorted(named.values(), key=lambda upstream: upstream.region != (regions[0] if regions else default))
    return Upstreams(ordered, any_region=any_region)


def _listed(given: Sequence[str] | None, environment: str | None) -> list[str]:
    return list(given) if given else [part.strip() for part in (environment or "").split(",") if part.strip()]
