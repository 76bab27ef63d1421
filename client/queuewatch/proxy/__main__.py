"""The command `queuewatch-proxy`."""

from __future__ import annotations

import http.client
import logging
import os
import sys

from queuewatch.proxy.options import address, address_text, parser


def main(arguments: list[str] | None = None) -> int:
    """Run the proxy until SIGTERM or SIGINT; return 2 for invalid settings, 1 if it cannot listen."""
    made = parser(os.environ)
    given = made.parse_args(arguments)
    if given.check:
        try:
            return _check(*address(given.listen))
        except ValueError as error:
            made.exit(2, f"queuewatch-proxy: {error}\n")
    try:
        import botocore.session

        from queuewatch.proxy import running
        from queuewatch.proxy.settings import settings
    except ModuleNotFoundError as error:
        made.exit(2, f"queuewatch-proxy: {error.name} is not installed; in a checkout: pip install './client[proxy]'\n")
    _log_to_stderr()
    try:
        checked = settings(given, os.environ, botocore.session.Session())
    except ValueError as error:
        made.exit(2, f"queuewatch-proxy: {error}\n")
    try:
        running.run(checked)
    except OSError as error:
        made.exit(
            1, f"queuewatch-proxy: cannot listen on {address_text(checked.host, checked.port)}: {error.strerror or error}\n"
        )
    return 0


def _check(host: str, port: int) -> int:
    """Check the health from inside a container, because a loopback address cannot be reached from outside."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- where to call, not where to listen
    try:
        connection = http.client.HTTPConnection(host, port, timeout=2)
        connection.request("GET", "/-/healthy")
        return 0 if connection.getresponse().status == 200 else 1
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"queuewatch-proxy at {address_text(host, port)} does not answer: {error}\n")
        return 1


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # Their records quote requests, which contain messages.
    for name in ("aiohttp.server", "aiohttp.client", "aiohttp.access", "aiohttp.web", "aiohttp.internal"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


if __name__ == "__main__":
    raise SystemExit(main())
