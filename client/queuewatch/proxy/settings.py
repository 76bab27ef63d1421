"""Validates the command line and the environment."""

from __future__ import annotations

import argparse
import ipaddress
import math
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError

from queuewatch.arguments import check_attribute, check_name
from queuewatch.consumer_name import name_of_environment
from queuewatch.environment import CONSUMER_VARIABLE
from queuewatch.proxy.options import DEFAULT_DRAIN_S, address
from queuewatch.proxy.upstreams import Upstream, Upstreams, upstream_of_region

_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL")
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 -- compared with, not listened on


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
    tls: ssl.SSLContext


def settings(given: argparse.Namespace, environment: Mapping[str, str], session: Any) -> Settings:
    """Return validated settings. Raises `ValueError`, which says what is wrong."""
    try:
        session.get_scoped_config()
    except BotoCoreError as error:
        raise ValueError(f"{error}; correct AWS_PROFILE or AWS' configuration file") from error
    host, port = address(given.listen)
    if not given.allow_remote and not _is_loopback(host):
        raise ValueError(
            f"{host} is not a loopback address: anyone who can reach it could use this proxy's credentials; add --allow-remote "
            "if only your own applications do"
        )
    upstreams = _upstreams(given, environment, session)
    for upstream in upstreams.all:
        if _leads_to(upstream.origin, host, port):
            raise ValueError(f"{upstream.origin} is this proxy's own address")
    if given.max_handles < 1 or given.max_buffered < 1:
        raise ValueError("--max-handles and --max-buffered must be positive numbers")
    check_name("--consumer", given.consumer)
    check_name("--scope (QUEUEWATCH_SCOPE)", given.scope)
    check_attribute("--lineage-attribute (QUEUEWATCH_LINEAGE_ATTRIBUTE)", given.lineage_attribute)
    return Settings(
        host=host,
        port=port,
        allowed_hosts=_listed(given.allow_host, environment.get("QUEUEWATCH_PROXY_ALLOW_HOSTS")),
        upstreams=upstreams,
        to=given.to,
        consumer=given.consumer or name_of_environment(CONSUMER_VARIABLE, environment) or socket.gethostname(),
        scope=given.scope,
        lineage_attribute=given.lineage_attribute,
        rewrite_queue_urls=not given.keep_queue_urls,
        max_handles=given.max_handles,
        max_buffered=given.max_buffered,
        drain_s=_drain_s(given.drain_s, environment.get("QUEUEWATCH_PROXY_DRAIN_S")),
        tls=_tls(environment.get("AWS_CA_BUNDLE")),
    )


def own_endpoints(environment: Mapping[str, str], host: str, port: int) -> list[str]:
    """Return the variables that would send the proxy's own calls, such as telemetry to an SQS queue, through the proxy itself."""
    return [name for name in _ENDPOINT_VARIABLES if _leads_to(environment.get(name, ""), host, port)]


def _leads_to(url: str, host: str, port: int) -> bool:
    try:
        parts = urlsplit(url)
        same_port = parts.port == port
    except ValueError:
        return False
    called = parts.hostname or ""
    return same_port and port != 0 and (called == host or (_is_loopback(called) and (_is_loopback(host) or host in _ANY)))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _drain_s(given: float | None, environment: str | None) -> float:
    if given is None and not environment:
        return DEFAULT_DRAIN_S
    name, value = ("--drain-s", str(given)) if given is not None else ("QUEUEWATCH_PROXY_DRAIN_S", str(environment))
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name}={value} is not a number of seconds; use {DEFAULT_DRAIN_S:g}, or 0 to stop at once")
    return seconds


def _tls(bundle: str | None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificate authorities, or those in AWS_CA_BUNDLE, like AWS' SDKs."""
    try:
        return ssl.create_default_context(cafile=bundle or None)
    except OSError as error:
        raise ValueError(
            f"AWS_CA_BUNDLE={bundle} cannot be read: {error.strerror or error}; name a PEM file of certificates, or unset it"
        ) from error


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
