"""The HTTP service in a thread of the job's process."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import uvicorn
from starlette.applications import Starlette

from sinks.http.connections import Connections, LimitedConnection, LimitedListener, Loop

log = logging.getLogger(__name__)

_STOP_WITHIN_S = 5


class CannotListenError(Exception):
    """The service cannot listen on the address; the message says why and what to do."""


class PortInUseError(CannotListenError):
    """Another process uses the port."""


@dataclass(frozen=True)
class RunningServer:
    """A running server. As a context manager it stops at the end of the block."""

    host: str
    port: int
    """The actual port, even if 0 was requested."""
    _server: uvicorn.Server
    _thread: threading.Thread
    _stopping: threading.Event
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The URL for a browser on this machine, without a trailing slash."""
        # Where to call, not where to listen.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def stop(self) -> None:
        """Finish responses in progress, for some seconds at most, and close the port. A second call does nothing."""
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(_STOP_WITHIN_S + 5)

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


@dataclass(frozen=True)
class Tls:
    """PEM files: the certificate with its chain, and its private key without a password."""

    cert_file: Path
    key_file: Path
    looked_at_every_s: float = 10.0
    """How often the files are looked at for a renewed certificate."""

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use the files for new connections. Raises `OSError` or `ValueError`, and leaves `context` as it is."""
        # A certificate without its key would leave the context with neither the old pair nor the new one.
        for checked in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # Given no password at all, OpenSSL would ask for that of an encrypted key at the terminal, and wait.
            checked.load_cert_chain(self.cert_file, self.key_file, password="")

    def version(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes with the files, whether they are written or replaced; empty while one is missing."""
        try:
            found = [file.stat() for file in (self.cert_file, self.key_file)]
        except (OSError, ValueError):
            return ()
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in found)


def serve(app: Starlette, host: str = "127.0.0.1", port: int = 9400, tls: Tls | None = None) -> RunningServer:
    """Serve `app` in a daemon thread; returns once it is listening. Port 0 picks a free one.

    Raises PortInUseError or CannotListenError.
    """
    connections: Connections = app.state.connections
    listener = LimitedListener(_listen(host, port), connections)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        http=partial(LimitedConnection, connections),  # type: ignore[arg-type] # a factory serves as well as a class
        ws="none",
        ssl_certfile=tls.cert_file if tls else None,
        ssl_keyfile=tls.key_file if tls else None,
    )
    version = tls.version() if tls else ()
    try:
        config.load()
    except (OSError, ValueError) as error:  # includes ssl.SSLError, and a NUL byte in a name
        listener.close()
        raise CannotListenError(f"http.tls cannot be used ({error}); configure a PEM certificate and its key") from error
    server = uvicorn.Server(config)

    async def serve_until_stopped() -> None:
        renewing = None
        if tls is not None and config.ssl is not None:
            renewing = asyncio.create_task(_use_renewed(tls, config.ssl, version))
        await server.serve(sockets=[listener])
        if renewing is not None:
            renewing.cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=partial(Loop, connections.limits.handshake_within_s)) as runner:
            runner.run(serve_until_stopped())

    thread = threading.Thread(target=run, name="queuewatch-http", daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise CannotListenError(f"the HTTP service on {host}:{port} ended during startup; see the log")
        time.sleep(0.01)
    return RunningServer(host, listener.getsockname()[1], server, thread, app.state.stopping, "https" if tls else "http")


async def _use_renewed(tls: Tls, context: ssl.SSLContext, version: tuple[tuple[int, int, int], ...]) -> None:
    """Use a certificate that is renewed while the service runs: it runs longer than most certificates are valid."""
    while True:
        await asyncio.sleep(tls.looked_at_every_s)
        found = tls.version()
        if found in ((), version):
            continue
        version = found
        try:
            tls.load_into(context)
        except (OSError, ValueError) as error:  # perhaps only one of the two files has been written yet
            log.warning("the renewed certificate %s cannot be used (%s): the one before stays in use", tls.cert_file, error)
        else:
            log.info("new connections use the renewed certificate %s", tls.cert_file)


def check_address(host: str, port: int, *, change: str) -> None:
    """Raise what `serve` would raise because it cannot listen there. `change` names the option that sets another port."""
    _listen(host, port, change).close()


def _listen(host: str, port: int, change: str = "--port or http.port") -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CannotListenError(
            f"{host!r} is not an address of this machine ({error.strerror}); set http.host to 127.0.0.1, or to 0.0.0.0 for every "
            "interface"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _reason(error, host, port, change) from error
    return listener


def _reason(error: OSError, host: str, port: int, change: str) -> CannotListenError:
    if error.errno == errno.EADDRINUSE:
        return PortInUseError(
            f"port {port} on {host} is in use, perhaps by another queuewatch; stop it, or choose another port with {change} "
            "(0 takes any free one)"
        )
    if error.errno == errno.EACCES:
        return CannotListenError(f"port {port} needs special privileges; choose 1024 or higher with {change}")
    return CannotListenError(f"cannot listen on {host}:{port} ({error.strerror}); set http.host to an address of this machine")
