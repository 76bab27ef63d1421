"""The command line of `queuewatch-proxy`; avoids slow imports, so that health checks are fast."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from queuewatch.environment import CONSUMER_VARIABLE

DEFAULT_LISTEN: Final = "127.0.0.1:9410"
DEFAULT_DRAIN_S: Final = 25.0


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the command line; options that are not given default to the environment."""
    made = argparse.ArgumentParser(
        prog="queuewatch-proxy",
        description="Forwards an application's SQS calls, signed with its own credentials, and reports them as telemetry. "
        "Point the application at it: AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9410",
    )
    add = made.add_argument
    add(
        "--listen",
        metavar="HOST:PORT",
        default=environment.get("QUEUEWATCH_PROXY_LISTEN", DEFAULT_LISTEN),
        help=f"address to listen on (QUEUEWATCH_PROXY_LISTEN; default {DEFAULT_LISTEN})",
    )
    add(
        "--allow-remote",
        action="store_true",
        help="allow an address that is not loopback: anyone who can reach it uses the proxy's credentials for SQS",
    )
    add(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="name by which applications call this proxy, can be repeated (QUEUEWATCH_PROXY_ALLOW_HOSTS, comma separated); "
        "addresses and names that only exist in a private network are always allowed, * allows all",
    )
    add(
        "--region",
        action="append",
        metavar="REGION",
        help="region whose SQS endpoint may be called, can be repeated (QUEUEWATCH_PROXY_REGIONS, comma separated; "
        "default AWS' own settings, such as AWS_REGION)",
    )
    add(
        "--endpoint",
        action="append",
        metavar="[REGION=]URL",
        help="an endpoint other than the region's own, such as a VPC endpoint, can be repeated "
        "(QUEUEWATCH_PROXY_ENDPOINTS, comma separated)",
    )
    add("--to", metavar="URL", help="where telemetry goes: kafka://, http(s)://, spool: or sqs: (QUEUEWATCH_TO)")
    add(
        "--consumer",
        metavar="NAME",
        help=f"name of the consumer in events ({CONSUMER_VARIABLE}; default: the host name, which in Kubernetes is the pod's)",
    )
    add(
        "--scope",
        default=environment.get("QUEUEWATCH_SCOPE") or None,
        help="replaces account/region in events (QUEUEWATCH_SCOPE)",
    )
    add(
        "--lineage-attribute",
        metavar="NAME",
        default=environment.get("QUEUEWATCH_LINEAGE_ATTRIBUTE") or None,
        help="message attribute with the sender's own id, to track messages through a redrive",
    )
    add("--keep-queue-urls", action="store_true", help="return queue URLs as SQS gives them, not as URLs of this proxy")
    add("--max-handles", type=int, default=100_000, metavar="N", help="receipt handles to remember (default 100000)")
    add(
        "--max-buffered",
        type=int,
        default=20_000,
        metavar="N",
        help="events to buffer while the telemetry destination is down (default 20000)",
    )
    add(
        "--drain-s",
        type=float,
        metavar="SECONDS",
        help="after SIGTERM, keep serving until no call has arrived for a second, at most this many seconds "
        f"(QUEUEWATCH_PROXY_DRAIN_S; default {DEFAULT_DRAIN_S:g})",
    )
    add("--check", action="store_true", help="check whether the proxy at --listen is healthy, and exit with 0 or 1")
    return made


def address(text: str) -> tuple[str, int]:
    """Parse `host:port` or `[::1]:port`. Raises `ValueError`."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not an address; use HOST:PORT")
    return host.strip("[]"), int(port)


def address_text(host: str, port: int) -> str:
    """Return `host:port`, or `[::1]:port`, as `--listen` accepts it and URLs contain it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
