"""HTTP connections whose responses must arrive completely within the timeout: a peer that trickles must not hold its caller.

Those with TLS share what it costs to read the trusted certificates.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LEAST_S: Final = 0.01
"""Bytes that have arrived are read even after the deadline: a function may have been frozen in between."""


class _Input(io.RawIOBase):
    """A socket's input. The socket's timeout applies to all reads together, not to each."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw
        self._timeout_s = sock.gettimeout()
        self._end_s = time.monotonic() + (self._timeout_s or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        if self._timeout_s is None:
            return self._raw.readinto(buffer)
        self._sock.settimeout(max(_LEAST_S, self._end_s - time.monotonic()))
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(self._timeout_s)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Input(sock, self.fp.detach()))


class HttpConnection(http.client.HTTPConnection):
    """A connection whose `timeout` limits each response as a whole."""

    response_class = _Response


class HttpsConnection(http.client.HTTPSConnection):
    """The same with TLS."""

    response_class = _Response


class KeptContext:
    """The TLS context of connections to one destination. Making it reads all trusted certificates: 20 ms of processor time."""

    def __init__(self) -> None:
        self._kept: ssl.SSLContext | None = None

    def get(self) -> ssl.SSLContext:
        """Return a context like that which `HTTPSConnection` makes for itself."""
        # Another class than at the first connection: gevent, say, has replaced it, and sockets need that of this moment.
        if self._kept is None or type(self._kept) is not ssl.SSLContext:
            self._kept = ssl._create_default_https_context()
            self._kept.set_alpn_protocols(["http/1.1"])
        return self._kept

    def failed(self, error: object) -> None:
        """Have the certificates read again after an error that they may be the cause of: they may be replaced meanwhile."""
        if isinstance(error, ssl.SSLCertVerificationError):
            self._kept = None


class HttpHandler(urllib.request.HTTPHandler):
    """Opens `http:` URLs with an `HttpConnection`."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(HttpConnection, req)


class HttpsHandler(urllib.request.HTTPSHandler):
    """Opens `https:` URLs with an `HttpsConnection`."""

    def __init__(self) -> None:
        super().__init__(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # not used: without one, Python 3.12 reads certificates
        self._tls = KeptContext()

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        try:
            return self.do_open(HttpsConnection, req, context=self._tls.get())
        except urllib.error.URLError as error:
            self._tls.failed(error.reason)
            raise
