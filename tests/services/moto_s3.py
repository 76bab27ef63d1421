"""moto's S3 in a process of its own, because a cluster's processes use it."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.process import free_port, listens, running, scratch_folder

BUCKET = "queuewatch"


@contextmanager
def start() -> Iterator[str]:
    """Run a server with an empty bucket while the block runs, and return its endpoint. Raises `ServiceUnavailable`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with scratch_folder("s3") as folder, running(command, folder / "s3.log", lambda _: listens(port) or None) as _:
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=30).close()
        yield endpoint
