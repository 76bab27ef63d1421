"""A pre-forking server under load, whose children are stopped: `python -m tests.client.forking TO FORKS`.

Two threads send through a watched client without a pause while the main thread forks. Each child sends too, until SIGTERM
interrupts it at a random moment; its handler sends once more, flushes and exits. The program prints one line of JSON.
"""

from __future__ import annotations

import collections
import itertools
import json
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import boto3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from queuewatch import Watch, watch

_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
_HANGS_AFTER_S = 60.0
_NOT_FLUSHED = 3


class _Server:
    def __init__(self, to: str, forks: int) -> None:
        self._forks = forks
        self._name = "parent"
        self._numbers = itertools.count()
        self._completed = mmap.mmap(-1, 4 * forks)  # shared with the children: how many calls returned in each
        self._client = self._without_network()
        self._watching: Watch = watch(self._client, to, linger_s=0.01, max_buffered=1_000_000)
        self.sent = [0, 0]

    def run(self) -> dict[str, Any]:
        """Fork; return how many children ended with each exit code, and how many calls returned in each process."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._load, args=(stop, n)) for n in range(2)]
        for thread in threads:
            thread.start()
        codes = collections.Counter(self._one_child(n) for n in range(self._forks))
        stop.set()
        for thread in threads:
            thread.join()
        flushed = self._watching.flush(60)
        completed = struct.unpack(f"{self._forks}i", self._completed[:])
        return {"codes": codes, "flushed": flushed, "parent": sum(self.sent), "children": completed}

    def _load(self, stop: threading.Event, me: int) -> None:
        while not stop.wait(0.002):
            self._send()
            self.sent[me] += 1

    def _one_child(self, n: int) -> str:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            self._be_child(n, write)
        os.close(write)
        os.read(read, 1)  # the handler is installed
        os.close(read)
        time.sleep(random.uniform(0, 0.01))
        os.kill(child, signal.SIGTERM)
        end_s = time.monotonic() + _HANGS_AFTER_S
        while time.monotonic() < end_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return str(os.waitstatus_to_exitcode(status))
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung"

    def _be_child(self, n: int, ready: int) -> NoReturn:
        self._name = str(n)

        def completed() -> None:
            self._send()
            struct.pack_into("i", self._completed, 4 * n, struct.unpack_from("i", self._completed, 4 * n)[0] + 1)

        def stop(*_: object) -> None:
            completed()
            if n % 10 == 0:
                sys.exit(0)  # some children leave through the interpreter's shutdown
            os._exit(0 if self._watching.flush(30) else _NOT_FLUSHED)

        signal.signal(signal.SIGTERM, stop)
        os.write(ready, b"x")
        while True:
            completed()

    def _send(self) -> None:
        self._client.send_message(QueueUrl=_URL, MessageBody="x")

    def _without_network(self) -> Any:
        client = boto3.Session("testing", "testing", region_name="eu-west-1").client("sqs")

        def answer(request: Any, **_: Any) -> Any:
            body = {"MessageId": f"{self._name}-{next(self._numbers)}", "MD5OfMessageBody": "9dd4e461268c8034f5c8564e155c67a6"}
            return AWSResponse(request.url, 200, HTTPHeaders.from_dict({}), _Raw(json.dumps(body).encode()))

        client.meta.events.register("before-send.sqs", answer)
        return client


class _Raw:
    """The raw response from which botocore reads a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield the whole body at once."""
        yield self._body


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_Server(sys.argv[1], int(sys.argv[2])).run()))
