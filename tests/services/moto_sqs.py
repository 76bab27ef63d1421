"""moto's SQS in a thread, ready at once: for small tests of standard queues with one consumer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moto.server import ThreadedMotoServer


@dataclass(frozen=True)
class MotoSqs:
    """A running moto server."""

    endpoint: str
    """The URL for `endpoint_url`."""


@contextmanager
def start() -> Iterator[MotoSqs]:
    """Run a moto server while the block runs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield MotoSqs(f"http://{host}:{port}")
    finally:
        server.stop()
