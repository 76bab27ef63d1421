"""Transports for a function: one keep-alive connection, and no SDK import at a cold start."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import socket
import ssl
import time
from typing import Any, Final
from urllib.parse import urlsplit

from queuewatch.places import region_of_url
from queuewatch.tls import HTTP_FIX, is_plain_text
from queuewatch.transports import SendError, Transport, open_transport
from queuewatch.transports.deadline import HttpConnection, HttpsConnection, KeptContext
from queuewatch.transports.http import NEVER_RETRIED, HttpTransport, explained, post_headers
from queuewatch.transports.sqs import MAX_BYTES, TOO_LARGE, body_of

_TIMEOUT_S: Final = 2.0
"""Timeout of one request. The invocation waits much less; a slow request may complete in the next invocation."""

_STALE: Final = (http.client.HTTPException, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a connection fails that the other side has closed. The errors of TLS are no ConnectionErrors."""

_MAX_ANSWER_BYTES: Final = 65_536
"""Both destinations answer with less; of another's body, only the start is read."""

_DOMAINS: Final = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
    "eu-isoe-": "cloud.adc-e.uk",
}
"""The domains of AWS' partitions by the beginning of their regions' names; of all others it is amazonaws.com."""


def transport_for(to: str) -> Transport:
    """Return the transport for a value of `QUEUEWATCH_TO`. Raises `ValueError`, which says what is wrong with it."""
    given = open_transport(to)  # validates it
    if isinstance(given, HttpTransport):
        return HttpPoster(given.url, given.name)
    if to.startswith("sqs:") and os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        queue, _, options = to.removeprefix("sqs:").removeprefix("//").partition("?")
        return QueuePoster(queue, region=options.removeprefix("region=") or None)
    return given


class _Connection:
    """A keep-alive connection, reopened if it went stale while the process was frozen."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.path = parts.path or "/"
        self._target = f"{self.path}?{parts.query}" if parts.query else self.path
        self.netloc = parts.netloc
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = KeptContext() if parts.scheme == "https" else None
        self._open: http.client.HTTPConnection | None = None

    def post(self, payload: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body of the response. Raises `OSError` or `http.client.HTTPException`."""
        kept = self._open is not None
        try:
            return self._post(payload, headers)
        except _STALE:
            # The other side may have closed an idle connection: try a new one. Events that arrive twice are counted once.
            if not kept:
                raise
            return self._post(payload, headers)

    def _post(self, payload: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            if self._open is None:
                self._open = self._make()
                self._open.connect()
                self._open.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.request("POST", self._target, body=payload, headers=headers)
            answer = self._open.getresponse()
            try:
                body = answer.read(_MAX_ANSWER_BYTES)
                # The unread rest of a long body would precede the next answer.
                kept = answer.isclosed() and not answer.will_close
            except (OSError, http.client.HTTPException):
                body, kept = b"", False  # the status has already said what happened to the events
            if not kept:
                self.close()
            return answer.status, body
        except BaseException as error:
            if self._tls is not None:
                self._tls.failed(error)
            self.close()
            raise

    def _make(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return HttpConnection(self._host, self._port, timeout=_TIMEOUT_S)
        return HttpsConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._tls.get())

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class _Poster(Transport):
    _connection: _Connection

    def close(self) -> None:
        self._connection.close()

    def after_fork(self) -> None:
        self._connection._open = None  # the parent's socket

    def _post(self, payload: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            return self._connection.post(payload, headers)
        except (OSError, http.client.HTTPException) as error:
            if is_plain_text(error):
                raise SendError(f"{self.name}: {HTTP_FIX}", retry=True) from error
            raise SendError(f"{self.name} does not answer: {type(error).__name__}", retry=True) from error


class HttpPoster(_Poster):
    """Posts NDJSON to the service's ingest endpoint, with the same bearer token as the other HTTP transport."""

    def __init__(self, url: str, name: str) -> None:
        """`name` is shown instead of the URL, whose query may hold a secret."""
        self.name = name
        self.max_bytes = 1_000_000
        self._connection = _Connection(url)

    def send(self, payload: bytes) -> None:
        status, body = self._post(payload, post_headers())
        if not 200 <= status < 300:
            # A wrong token or address is usually corrected later, so events wait as during an outage.
            problem = f"{self.name} answered {status}{explained(body)}"
            raise SendError(problem, retry=status not in NEVER_RETRIED, too_large=status == 413)


class QueuePoster(_Poster):
    """Sends one SQS message per payload to a telemetry queue, signed with the function's own credentials."""

    def __init__(self, queue: str, *, region: str | None = None) -> None:
        self.name = f"sqs:{queue}"
        self.max_bytes = MAX_BYTES
        self._queue = queue
        named = region or region_of_url(queue)
        self._region = named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        self._url: str | None = queue if "/" in queue else None
        self._connection = _Connection(self._endpoint())

    def send(self, payload: bytes) -> None:
        if self._url is None:
            self._url = self._call("GetQueueUrl", {"QueueName": self._queue})["QueueUrl"]
        self._call("SendMessage", {"QueueUrl": self._url, "MessageBody": body_of(payload)})

    def _endpoint(self) -> str:
        named = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
        if named:
            return named
        if self._url:
            return "{0.scheme}://{0.netloc}/".format(urlsplit(self._url))
        domain = next((domain for prefix, domain in _DOMAINS.items() if self._region.startswith(prefix)), "amazonaws.com")
        return f"https://sqs.{self._region}.{domain}/"

    def _call(self, action: str, arguments: dict[str, str]) -> dict[str, Any]:
        payload = json.dumps(arguments).encode()
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "Host": self._connection.netloc,
            "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "X-Amz-Target": f"AmazonSQS.{action}",
        }
        token = os.environ.get("AWS_SESSION_TOKEN")
        if token:
            headers["X-Amz-Security-Token"] = token
        key = os.environ.get("AWS_ACCESS_KEY_ID", "")
        headers["Authorization"] = authorization(
            payload, headers, self._connection.path, self._region, key, os.environ.get("AWS_SECRET_ACCESS_KEY", "")
        )
        status, body = self._post(payload, headers)
        if status == 200:
            try:
                answer: dict[str, Any] = json.loads(body)
            except ValueError as error:
                raise SendError(f"{self.name}: the answer to {action} is not JSON", retry=True) from error
            return answer
        code = _error_code(body)
        too_large = code in TOO_LARGE
        raise SendError(f"{self.name}: {action} answered {status} {code}", retry=not too_large, too_large=too_large)


def authorization(payload: bytes, headers: dict[str, str], path: str, region: str, key: str, secret_key: str) -> str:
    """Return the Authorization header (AWS Signature Version 4) for a POST to SQS without a query."""
    names = ";".join(sorted(name.lower() for name in headers))
    lines = "".join(f"{name.lower()}:{headers[name].strip()}\n" for name in sorted(headers, key=str.lower))
    request = f"POST\n{path}\n\n{lines}\n{names}\n{hashlib.sha256(payload).hexdigest()}"
    stamp = headers["X-Amz-Date"]
    scope = f"{stamp[:8]}/{region}/sqs/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signing = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode(), "sha256").hex()
    return f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"


def _error_code(body: bytes) -> str:
    """Return the code of an error; SQS adds an ending to some that SDKs do not show: `…#InvalidParameterValueException`."""
    try:
        said = str(json.loads(body).get("__type", ""))
    except (ValueError, AttributeError):
        return ""
    return said.rpartition("#")[2].removesuffix("Exception")
