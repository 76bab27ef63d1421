"""Starts the proxy; on a stop, completes the calls in flight and sends the remaining telemetry."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import botocore.session
from aiohttp import web

from queuewatch.environment import TO_VARIABLE, is_disabled
from queuewatch.proxy.credentials import CredentialSource
from queuewatch.proxy.forwarding import Forwarder
from queuewatch.proxy.host_names import HostNames
from queuewatch.proxy.options import address_text
from queuewatch.proxy.server import Handler
from queuewatch.proxy.settings import Settings, own_endpoints
from queuewatch.proxy.telemetry import Telemetry
from queuewatch.sender import BackgroundSender
from queuewatch.transports import open_transport

_log = logging.getLogger("queuewatch.proxy")

_QUIET_S: Final = 1.0
_FLUSH_WITHIN_S: Final = 5.0
_SWITCH_INTERVAL_S: Final = 0.0005
"""The telemetry thread yields to calls after this long; Python's default is 5 ms."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises `OSError` if the address is not available."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    for name in own_endpoints(os.environ, settings.host, settings.port):
        # Meant for the application. Each call with telemetry would itself be reported, without end.
        del os.environ[name]
        _log.warning("%s is this proxy's own address; the proxy itself does not use it", name)
    _runner()(_serve(settings))


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return asyncio.run
    return uvloop.run


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    sender = _sender(settings)
    credentials = CredentialSource(botocore.session.Session())
    forwarder = Forwarder(credentials, tls=settings.tls, use_env_proxy=_has_env_proxy(settings))
    telemetry = Telemetry(
        sender,
        consumer=settings.consumer,
        scope=settings.scope,
        max_handles=settings.max_handles,
        lineage_attribute=settings.lineage_attribute,
    )
    handler = Handler(
        settings.upstreams,
        forwarder,
        telemetry,
        host_names=HostNames((settings.host, *settings.allowed_hosts)),
        rewrite_queue_urls=settings.rewrite_queue_urls,
    )
    runner = web.ServerRunner(handler.server(), shutdown_timeout=0.5)
    await runner.setup()
    refreshing = asyncio.ensure_future(credentials.keep_fresh())
    try:
        site = web.TCPSite(runner, settings.host, settings.port, backlog=1024)
        await site.start()
        # Existing objects stay, so the garbage collector need not scan them again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        host, port = runner.addresses[0][:2]
        forwards = ", ".join(f"{upstream.origin} ({upstream.region})" for upstream in settings.upstreams.all)
        telemetry_to = f"telemetry to {sender.transport.name}" if sender is not None else "telemetry off"
        _log.info("listening on %s, forwards to %s, %s", address_text(host, port), forwards, telemetry_to)
        await stop.wait()
        handler.draining = True
        _log.info("stopping: %d calls in flight", handler.in_flight)
        await _drain(handler, settings.drain_s)
    finally:
        refreshing.cancel()
        await runner.cleanup()
        await forwarder.close()
        if sender is not None:
            await asyncio.to_thread(sender.close, _FLUSH_WITHIN_S)
        _log.info("stopped: %s", handler.stats())


async def _drain(handler: Handler, within_s: float) -> None:
    """Keep serving until the application has stopped calling.

    An application that is stopped at the same moment still deletes the messages it has just processed.
    """
    asked_s = time.monotonic()
    while (now_s := time.monotonic()) < asked_s + within_s:
        if not handler.in_flight and now_s - max(asked_s, handler.last_call_s) >= _QUIET_S:
            return
        await asyncio.sleep(0.05)
    if handler.in_flight:
        _log.warning("%d calls were still in flight after %.0f s and are cut off", handler.in_flight, within_s)
    elif handler.last_call_s > asked_s:
        _log.warning("the application still called after %.0f s; its further calls fail", within_s)


def _sender(settings: Settings) -> BackgroundSender | None:
    """Return the telemetry sender; without a valid destination, calls are still forwarded."""
    to = settings.to or os.environ.get(TO_VARIABLE)
    if is_disabled():
        return None
    if not to:
        _log.error("no telemetry destination: give --to or set %s; calls are forwarded, nothing is reported", TO_VARIABLE)
        return None
    try:
        transport = open_transport(to, default_region=settings.upstreams.all[0].region)
    except ValueError as error:
        _log.error("%s; calls are forwarded, nothing is reported", error)
        return None
    return BackgroundSender(transport, max_buffered=settings.max_buffered)


def _has_env_proxy(settings: Settings) -> bool:
    """Return whether HTTPS_PROXY and similar variables apply. Checked once, because a look-up on every call is costly."""
    proxies = urllib.request.getproxies_environment()
    return any(upstream.origin.partition(":")[0] in proxies for upstream in settings.upstreams.all)
