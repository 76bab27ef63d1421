"""Answers that are not from SQS, as a proxy in between may give them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from sources.sqs.account import AccountReader
from sources.sqs.clients import make_clients
from sources.sqs.config import DiscoveryConfig, SqsCollectorConfig

RUNNING = threading.Event()
"""It is never stopped."""
URL = "https://sqs.eu-west-1.amazonaws.com/1/orders"


@contextmanager
def proxy(status: int, body: bytes) -> Iterator[str]:
    """Run a server that answers everything with `body`, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, "<html>Zugriff verweigert für diese Adresse</html>".encode("latin-1")),
        (200, b"[]"),
        (200, b"null"),
        (200, b'"ok"'),
        (200, b'{"Attributes": []}'),
        (200, b'{"Attributes": {"QueueArn": 7}}'),
        (403, b'{"__type": 5}'),
    ],
)
def test_an_answer_that_is_not_from_sqs_is_a_problem_of_its_queue(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    """botocore's parsers raise errors of their own, which ended the collector for all regions, with a traceback."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with proxy(status, body) as address:
        [client] = make_clients(SqsCollectorConfig(regions=("eu-west-1",), endpoint_url=address))
        named = AccountReader(client, DiscoveryConfig(urls=(URL,)))
        named.discover(RUNNING)
        list(named.read(RUNNING))
        if status != 200 or not body.startswith(b"{"):
            assert {problem.queue for problem in named.take_problems()} == {"orders"}
            with pytest.raises((BotoCoreError, ClientError)):
                AccountReader(client, DiscoveryConfig()).discover(RUNNING)


def test_a_page_in_another_encoding_is_reported_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with proxy(403, b"<html>f\xfcr</html>") as address:
        [client] = make_clients(SqsCollectorConfig(regions=("eu-west-1",), endpoint_url=address))
        reader = AccountReader(client, DiscoveryConfig(urls=(URL,)))
        reader.discover(RUNNING)
    said = str(reader.take_problems()[0])
    assert "so it is not from AWS: check the proxy or endpoint_url" in said
