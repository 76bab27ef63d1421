"""Starting and stopping the server, and a port that cannot be bound."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from sinks.http import CannotListenError, ConnectionLimits, HttpSettings, PortInUseError, create_app, serve
from sinks.store import SnapshotStore
from tests.sinks.fakes import NOW_MS, shop_snapshot
from tests.sinks.http.conftest import StartService
from tests.waiting import until


def test_a_port_in_use_is_named_with_the_fix() -> None:
    """The error is raised before any thread is started."""
    with serve(create_app(SnapshotStore()), port=0) as first:
        before = threading.active_count()
        with pytest.raises(PortInUseError, match=rf"port {first.port} on 127\.0\.0\.1 is in use.*http\.port"):
            serve(create_app(SnapshotStore()), port=first.port)
        assert threading.active_count() == before


def test_a_host_of_another_machine_is_named() -> None:
    """The host may be mistyped or belong to another machine."""
    with pytest.raises(CannotListenError, match=r"http\.host"):
        serve(create_app(SnapshotStore()), host="no-such-host.invalid", port=0)
    with pytest.raises(CannotListenError, match=r"cannot listen on 192\.0\.2\.1:0"):
        serve(create_app(SnapshotStore()), host="192.0.2.1", port=0)


def test_stopping_frees_the_port_and_ends_the_thread() -> None:
    """Afterwards a test, or a restart in the same process, can bind the port again."""
    before = set(threading.enumerate())
    server = serve(create_app(SnapshotStore()), port=0)
    assert httpx.get(f"{server.url}/-/healthy").status_code == 200
    server.stop()
    server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0
    assert not [t for t in set(threading.enumerate()) - before if t.name == "queuewatch-http"]
    serve(create_app(SnapshotStore()), port=server.port).stop()


def test_stopping_does_not_wait_for_open_pages() -> None:
    """A page left open on a wall display holds a stream forever."""
    server = serve(create_app(SnapshotStore()), port=0)
    with httpx.stream("GET", f"{server.url}/api/v1/stream", timeout=10) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.stop()
        list(lines)  # raises if the stream was cut, as it is when a response does not end in the time to stop


@pytest.mark.slow
def test_a_stream_announces_each_new_snapshot(start: StartService) -> None:
    """The event carries version and time; the page then fetches what it shows."""
    service = start(shop_snapshot())
    with httpx.stream("GET", f"{service.url}/api/v1/stream", timeout=10) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        events: list[str] = []
        for line in lines:
            if line.startswith("data:"):
                events.append(line)
                if len(events) == 2:
                    break
                service.store.publish(replace(shop_snapshot(), at_ms=NOW_MS + 5_000))
    assert events == [
        f'data: {{"version":1,"at_ms":{NOW_MS}}}',
        f'data: {{"version":2,"at_ms":{NOW_MS + 5_000}}}',
    ]


def test_streams_leave_half_of_the_connections_of_an_address(start: StartService) -> None:
    """Behind a proxy all browsers have its address: with as many pages open, nobody could open another one, or poll."""
    service = start(shop_snapshot(), HttpSettings(connections=ConnectionLimits(per_address=8)))
    request = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    host, port = service.url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        browsers = [stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(7)]
        for browser in browsers:
            browser.sendall(request)
        codes = sorted(browser.recv(12)[-3:] for browser in browsers)
        assert codes == [b"200"] * 4 + [b"503"] * 3
        assert service.client.get("/api/v1/queues").status_code == 200


def test_with_too_many_streams_browsers_poll(start: StartService) -> None:
    """When a stream ends, its slot is free for another."""
    service = start(shop_snapshot(), HttpSettings(max_streams=1))
    with httpx.stream("GET", f"{service.url}/api/v1/stream", timeout=10) as stream:
        lines = stream.iter_lines()
        next(lines)
        answer = service.client.get("/api/v1/stream")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_streams")
    del lines

    def accepted() -> bool:
        with httpx.stream("GET", f"{service.url}/api/v1/stream", timeout=10) as stream:
            return stream.status_code == 200

    until(accepted, "the slot of the ended stream is free")
