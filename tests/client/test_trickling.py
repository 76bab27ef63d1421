"""Destinations whose responses never end: they must not hold a sender, nor fill its memory."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from queuewatch import SendError
from queuewatch.aws_lambda import posting
from queuewatch.aws_lambda.posting import HttpPoster
from queuewatch.cloudflare import PullConsumer, PullError
from queuewatch.transports.http import HttpTransport
from tests.client.transports import Kept
from tests.services.node import find_node
from tests.services.provider import Services

TIMEOUT_S = 0.3
ACCEPTED = "HTTP/1.1 202 Accepted\r\n"
HEADER = ACCEPTED + "Server: "
BODY = ACCEPTED + "Content-Length: 1000000000\r\n\r\n"
CHUNK_SIZE = ACCEPTED + "Transfer-Encoding: chunked\r\n\r\n1;"


class Trickle:
    """One response: `start` at once, then a byte every few milliseconds for half a minute, unless the client hangs up."""

    def __init__(self, start: str) -> None:
        self.url = ""
        self.hung_up = threading.Event()
        self._start = start.encode()

    def answer(self, client: socket.socket) -> None:
        """Answer one request."""
        client.recv(65_536)
        client.settimeout(0.02)
        try:
            client.sendall(self._start)
            for _ in range(1_500):
                try:
                    if not client.recv(65_536):
                        break
                except TimeoutError:
                    client.sendall(b"x")
            else:
                return
        except ConnectionError:
            pass
        self.hung_up.set()


@contextmanager
def trickling(start: str) -> Iterator[Trickle]:
    """Serve one response that trickles."""
    trickle = Trickle(start)

    def serve() -> None:
        with server.accept()[0] as client:
            trickle.answer(client)

    with socket.create_server(("127.0.0.1", 0)) as server:
        trickle.url = f"http://127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield trickle
        thread.join(60)


def by_transport(url: str) -> None:
    """Send by HTTP."""
    HttpTransport(url, timeout_s=TIMEOUT_S).send(b"{}\n")


def by_function(url: str) -> None:
    """Send as a function does."""
    HttpPoster(f"{url}/api/v1/events", url).send(b"{}\n")


@pytest.mark.slow
@pytest.mark.parametrize("send", [by_transport, by_function])
@pytest.mark.parametrize("start", [HEADER, CHUNK_SIZE, BODY], ids=["header", "size of a chunk", "body"])
def test_a_response_that_trickles_holds_no_sender(
    start: str, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is for the whole response. Events that were accepted are not sent again, whatever follows the status."""
    monkeypatch.setattr(posting, "_TIMEOUT_S", TIMEOUT_S)
    with trickling(start) as trickle:
        if start is HEADER:
            with pytest.raises(SendError, match="does not answer") as caught:
                send(trickle.url)
            assert caught.value.retry
        else:
            send(trickle.url)
    assert trickle.hung_up.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("start", [BODY, BODY.replace("202", "503")], ids=["success", "error"])
def test_a_response_that_trickles_holds_no_pull_consumer(start: str) -> None:
    """The error is raised once the timeout is over."""
    with trickling(start) as trickle, pytest.raises(PullError):
        PullConsumer("a", "0123", queue="orders", to=Kept(), token="hush", base_url=trickle.url, timeout_s=TIMEOUT_S).pull()
    assert trickle.hung_up.is_set()


NODE_POSTING = Path(posting.__file__).parent / "node/posting.mjs"
LONG = ACCEPTED + f"Content-Length: 1000000\r\n\r\n{'x' * 100_000}"


@pytest.mark.slow
@pytest.mark.parametrize("start", [HEADER, CHUNK_SIZE, BODY, LONG], ids=["header", "size of a chunk", "body", "long body"])
def test_a_response_that_trickles_holds_no_function_in_node(start: str, services: Services) -> None:
    """As in Python, accepted events are not sent again, and no more than the start of a body is kept."""
    script = f"""
        import {{ HttpPoster }} from {json.dumps(NODE_POSTING.as_uri())};
        const poster = new HttpPoster(process.argv[1], {{}});
        const alive = setInterval(() => {{}}, 1000);
        await poster.send(Buffer.from("{{}}")).then(() => console.log("sent"), (error) => console.log(error.message));
        clearInterval(alive);
    """
    with trickling(start) as trickle:
        command = [services.found(find_node).executable, "--input-type=module", "--eval", script, trickle.url]
        said = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    assert ("does not answer" in said) if start is HEADER else said == "sent\n", said
    assert trickle.hung_up.is_set()


def test_a_function_keeps_its_connection_unless_a_body_was_too_long() -> None:
    """The rest of a body that is not read would be taken for the next response."""
    ports: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        lengths: ClassVar = [0, 2, 100_000, 2]

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            ports.append(self.client_address[1])
            length = self.lengths[len(ports) - 1]
            self.send_response(202)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(b" " * length)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        poster = HttpPoster(f"http://127.0.0.1:{server.server_port}/", "here")
        for _ in Handler.lengths:
            poster.send(b"{}\n")
        poster.close()
        server.shutdown()
        thread.join()
    assert ports[0] == ports[1] == ports[2] != ports[3]
