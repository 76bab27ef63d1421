"""Limits on connections: how many there may be, and deadlines for sending requests and reading responses.

Every connection is a file descriptor of the job's own process, which its checkpoint needs too.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sinks.prometheus import Family

CUT: Final = "queuewatch.cut"
"""The name in a request's `state` of the function that ends its connection at once."""
_LAST_S: Final = 4.0
"""When the server stops, connections still open after this long are cut. A second later, uvicorn would cancel their requests and
log a traceback for each."""


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits, as counts and seconds."""

    total: int = 256
    per_address: int = 64
    """Maximum from one address. All connections through a proxy share its address."""
    headers_within_s: float = 10.0
    """Time until a request's headers are complete, from its first byte or from the start of the connection."""
    rest_of_body_within_s: float = 30.0
    """Time for the rest of a body that was answered before it was complete, from the end of its response."""
    read_within_s: float = 60.0
    """A client that reads nothing of its response for this long is disconnected."""
    unread_bytes: int = 256 * 1024 * 1024
    """Maximum of all responses together that clients have not read yet; for more, some of these clients are disconnected."""
    handshake_within_s: float = 10.0
    """Time for the TLS handshake."""


class Connections:
    """Counts open and refused connections. Written by the server's thread only; read by others."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._by_address: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        """Count one more connection, or refuse it."""
        if self._by_address.total() >= self.limits.total:
            self._refused["total"] += 1
            return False
        if self._by_address[address] >= self.limits.per_address:
            self._refused["per_address"] += 1
            return False
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Record the end of an admitted connection."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def too_slow(self, what: str) -> None:
        """Record a connection that was closed because it missed a deadline."""
        self._refused[what] += 1

    def families(self) -> Iterable[Family]:
        """Return the metrics for `/metrics`."""
        reasons = ("total", "per_address", "slow_headers", "slow_body", "slow_reader")
        return (
            Family("queuewatch_http_connections", [({}, self._by_address.total())]),
            Family("queuewatch_http_refused_total", [({"reason": reason}, self._refused[reason]) for reason in reasons]),
        )


class LimitedListener(socket.socket):
    """A listening socket that closes connections beyond the limits as it accepts them, before TLS has cost anything."""

    def __init__(self, listener: socket.socket, connections: Connections) -> None:
        """Take over `listener`."""
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._registry = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, as a socket does. Raises `ConnectionAbortedError` for one that is refused."""
        accepted, peer = super().accept()
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._registry.admit(address):
            accepted.close()
            raise ConnectionAbortedError  # asyncio goes on
        return _Admitted(accepted, partial(self._registry.leave, address)), peer


class _Admitted(socket.socket):
    """An admitted connection, which leaves when it is closed."""

    def __init__(self, accepted: socket.socket, leave: Callable[[], None]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._leave: Callable[[], None] | None = leave

    def close(self) -> None:
        super().close()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class LimitedConnection(H11Protocol):
    """One connection, within the deadlines of `connections`; uvicorn creates it with `options`."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited: str | None = None
    _read_deadline: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._registry = connections
        self.app_state = {**self.app_state, CUT: partial(self._cut, "slow_reader")}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._read_deadline is not None:
            self._read_deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_request()

    def send_400_response(self, msg: str) -> None:
        # The request became invalid while the application reads or answers it, or after that; h11 would refuse the second answer.
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_request()

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(_LAST_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_deadline = self.loop.call_later(self._registry.limits.read_within_s, self._cut, "slow_reader")

    def resume_writing(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None
        super().resume_writing()

    def _await_request(self) -> None:
        # One deadline for all headers of a request, and one for the body that nobody reads after its response, even if bytes
        # keep arriving. A body that is read has the deadline of its reader.
        if self.conn.their_state is h11.IDLE:
            self._arm("slow_headers", self._registry.limits.headers_within_s)
        elif self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self._arm("slow_body", self._registry.limits.rest_of_body_within_s)
        else:
            self._disarm()

    def _arm(self, what: str, within_s: float) -> None:
        if self._awaited != what:
            self._disarm()
            self._deadline = self.loop.call_later(within_s, self._cut, what)
            self._awaited = what

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = self._awaited = None

    def _cut(self, why: str) -> None:
        self._registry.too_slow(why)
        self.transport.abort()


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a shorter TLS handshake timeout than the default of a minute."""

    def __init__(self, handshake_within_s: float) -> None:
        super().__init__()
        self._handshake_within_s = handshake_within_s

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Create a server, as in asyncio."""
        if options.get("ssl"):
            options.setdefault("ssl_handshake_timeout", self._handshake_within_s)
        return await super().create_server(*args, **options)
