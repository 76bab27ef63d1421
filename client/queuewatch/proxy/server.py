"""The HTTP server for the application: one handler for all calls."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web
from multidict import CIMultiDict

from queuewatch.clock import now_ms
from queuewatch.proxy import query_protocol
from queuewatch.proxy.calls import AppCall, is_retry, read_call
from queuewatch.proxy.forwarding import MAX_LINE_BYTES, Answer, Forwarder, NoAnswer
from queuewatch.proxy.host_names import HostNames
from queuewatch.proxy.queue_urls import QueueUrls
from queuewatch.proxy.requested_attributes import NOTHING_CHANGED
from queuewatch.proxy.telemetry import Telemetry
from queuewatch.proxy.upstreams import NotConfigured, Upstream, Upstreams

_MAX_BODY_BYTES: Final = 16 << 20
"""A batch of 1 MiB grows to at most 6 MiB if JSON or a form escapes every character."""
_RECEIVE: Final = "ReceiveMessage"
_DELETE: Final = "DeleteMessage"
_GIVES_QUEUE_URLS: Final = frozenset(("CreateQueue", "GetQueueUrl", "ListQueues", "ListDeadLetterSourceQueues"))


class HangUps(web.Server):
    """aiohttp's server, which also ends a long poll at SQS when the application hangs up, as would happen without a proxy.

    aiohttp can do that only for all requests or for none, but a send or a delete must continue.
    """

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(
            handler,
            request_factory=_request,
            access_log=None,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        )
        self._polls: dict[web.RequestHandler, asyncio.Task[Any]] = {}

    @contextmanager
    def watched(self, request: web.BaseRequest) -> Iterator[None]:
        """Cancel the task that answers `request` if its connection is lost."""
        self._polls[request.protocol] = request.task
        try:
            yield
        finally:
            self._polls.pop(request.protocol, None)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        task = self._polls.pop(handler, None)
        if task is not None:
            task.cancel()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Create aiohttp's request object, with a size limit for the largest possible call."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES)


class Handler:
    """Answers calls by forwarding them, and reports their effect.

    A call that cannot be parsed is still forwarded; an error in telemetry never changes a response.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        forwarder: Forwarder,
        telemetry: Telemetry,
        *,
        host_names: HostNames,
        rewrite_queue_urls: bool = True,
    ) -> None:
        self._upstreams = upstreams
        self._forwarder = forwarder
        self._telemetry = telemetry
        self._host_names = host_names
        self._rewrite_queue_urls = rewrite_queue_urls
        self._hang_ups = HangUps(self)
        self.in_flight = 0
        self.last_call_s = 0.0
        self.calls = 0
        self.no_answer = 0
        self.refused = 0
        self.draining = False

    def server(self) -> web.Server:
        """Return the server for an aiohttp runner."""
        return self._hang_ups

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request from any client that reaches the listening address."""
        if request.raw_path.startswith("/-/"):
            return self._own(request)
        refusal = _refusal(request) or self._host_names.refusal(request.headers.get("Host", ""))
        if refusal:
            self.refused += 1
            return web.Response(status=403, text=f"queuewatch-proxy: {refusal}\n")
        self.in_flight += 1
        self.calls += 1
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1
            self.last_call_s = time.monotonic()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if "Expect" in request.headers and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            # Raised further, it would keep what was read of the body until the garbage collector runs, which is seldom here.
            return web.Response(status=413, text=error.text)
        call = read_call(request.headers, request.raw_path.partition("?")[2], body)
        try:
            upstream = self._upstreams.choose(_credential(request))
        except NotConfigured as error:
            self.refused += 1
            return _error(call, 403, "AccessDenied", str(error))
        if call.operation != _RECEIVE:
            # Complete the call even if the application hangs up, because SQS completes it too.
            return await self._exchange(request, call, upstream)
        with self._hang_ups.watched(request):
            return await self._exchange(request, call, upstream)

    async def _exchange(self, request: web.BaseRequest, call: AppCall, upstream: Upstream) -> web.Response:
        urls = QueueUrls(request.host, upstream, rewrite=self._rewrite_queue_urls)
        path = request.raw_path.partition("?")[0]
        queue_url, asked = "", NOTHING_CHANGED
        wanted = self._telemetry.wants(call.operation)
        try:
            queue_url = self._redirect(call, urls, request, path)
            if wanted and call.operation == _RECEIVE:
                call.body, asked = call.codec.asking_for_all(call.body, call.params, self._telemetry.lineage_attribute)
        except Exception as error:
            wanted = False
            self._telemetry.failed(error)
        began_at = now_ms()
        try:
            headers = [*request.headers.items()]
            if call.is_from_url and "Content-Type" not in request.headers:
                headers.append(("Content-Type", query_protocol.CONTENT_TYPE))
            answer = await self._forwarder.forward(upstream, path, headers, call.body)
        except NoAnswer as error:
            self.no_answer += 1
            return _error(call, 503, "ServiceUnavailable", str(error))
        body = answer.body
        # By the clock of SQS where this machine's is wrong: events that are too old or too new are not believed.
        offset_ms = 1000 * self._forwarder.clock_offset_s
        times_ms = (began_at + offset_ms, now_ms() + offset_ms)
        try:
            if answer.status == 200 and wanted:
                parsed = call.codec.parse_answer(call.operation, body)
                # Strip first: the application gets its response even if telemetry fails.
                body = call.codec.strip(body, parsed, asked)
                retried = is_retry(request.headers.get("amz-sdk-request", ""))
                self._telemetry.report(call, parsed, queue_url, upstream.region, times_ms, retried=retried)
            elif wanted and answer.status == 400 and call.operation == _DELETE:
                refusal = call.codec.parse_error(body)
                self._telemetry.report_refusal(call, refusal, queue_url, upstream.region, times_ms)
            elif answer.status == 200 and call.operation in _GIVES_QUEUE_URLS:
                body = call.codec.with_queue_urls(body, urls.to_application)
        except Exception as error:
            self._telemetry.failed(error)
        return _response(answer, body)

    def _redirect(self, call: AppCall, urls: QueueUrls, request: web.BaseRequest, path: str) -> str:
        """Rewrite the call to use SQS' queue URL; return the queue's canonical URL."""
        url = call.params.get("QueueUrl")
        if not isinstance(url, str) or not url:
            # The Query protocol may name the queue only in the path.
            return urls.canonical(f"http://{request.host}{path}") if path.strip("/") else ""
        at_upstream = urls.to_upstream(url)
        if at_upstream != url:
            call.body = call.codec.with_queue_url(call.body, at_upstream)
            # A call that asks for more attributes is encoded again from its parameters.
            call.params = {**call.params, "QueueUrl": at_upstream}
        return urls.canonical(url)

    def _own(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/-/healthy":
            return web.Response(text="draining\n" if self.draining else "ok\n")
        if request.path == "/-/stats":
            return web.Response(text=json.dumps(self.stats(), indent=2) + "\n", content_type="application/json")
        return web.Response(status=404, text="queuewatch-proxy: /-/healthy and /-/stats are here\n")

    def stats(self) -> dict[str, Any]:
        """Return the counters."""
        return {
            "pid": os.getpid(),
            "calls": self.calls,
            "in_flight": self.in_flight,
            "no_answer": self.no_answer,
            "refused": self.refused,
            "clock_offset_s": self._forwarder.clock_offset_s,
            **self._telemetry.stats(),
        }


def _refusal(request: web.BaseRequest) -> str | None:
    """Return why a request is refused, if it does not come from an SDK: a web page must not get its requests signed here."""
    if "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
        return "requests of browsers are not forwarded"
    if not request.raw_path.startswith("/"):
        return "this proxy forwards only to its configured SQS endpoints, not to other hosts"
    if request.method not in ("POST", "GET") or (request.method == "GET" and not request.query_string):
        return "this is a proxy for SQS calls; point AWS_ENDPOINT_URL_SQS here"
    if request.method == "GET" and not _is_signed(request):
        # A page can make a browser fetch any URL, as an image for example, but cannot sign the request.
        return "a GET request is forwarded only if the application has signed it"
    return None


def _is_signed(request: web.BaseRequest) -> bool:
    return "Authorization" in request.headers or "X-Amz-Signature" in request.query


def _credential(request: web.BaseRequest) -> str | None:
    """Return what names the region that the application signed the call for; a presigned call has it in its URL."""
    presigned = request.query.get("X-Amz-Credential")
    return request.headers.get("Authorization") or (f"Credential={presigned}" if presigned else None)


def _error(call: AppCall, status: int, code: str, message: str) -> web.Response:
    body, headers = call.codec.error(code, message, sender=status < 500)
    return web.Response(status=status, body=body, headers=CIMultiDict(headers))


def _response(answer: Answer, body: bytes) -> web.Response:
    return web.Response(status=answer.status, reason=answer.reason, body=body, headers=answer.headers)
