"""An endpoint with minimal cost: `python -m tests.benchmarks.proxy.upstream`. Prints its address.

It answers by operation and ignores the rest of the request; a ReceiveMessage with a wait time is answered after that time.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast

import uvloop

_ATTRIBUTES = {
    "SenderId": "AIDAEXAMPLE",
    "SentTimestamp": "1760000000000",
    "ApproximateReceiveCount": "1",
    "ApproximateFirstReceiveTimestamp": "1760000000100",
}
_ID = "3f1c9d5e-2f5d-4a59-8f0a-4c39f7d2b001"
HANDLE = "AQEB" + "x" * 260
_DIGEST = "d41d8cd98f00b204e9800998ecf8427e"
BODY = json.dumps({"order": 17, "lines": ["x" * 40] * 20})

_ANSWERS = {
    b"SendMessage": {"MD5OfMessageBody": _DIGEST, "MessageId": _ID},
    b"ReceiveMessage": {
        "Messages": [{"MessageId": _ID, "ReceiptHandle": HANDLE, "MD5OfBody": _DIGEST, "Body": BODY, "Attributes": _ATTRIBUTES}]
    },
    b"DeleteMessage": {},
}
_TARGET = re.compile(rb"x-amz-target: AmazonSQS\.(\w+)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_WAIT = re.compile(rb'"WaitTimeSeconds":\s*(\d+)')


def _packed(answer: object) -> bytes:
    body = json.dumps(answer, separators=(",", ":")).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_PACKED = {name: _packed(answer) for name, answer in _ANSWERS.items()}
_EMPTY = _packed({})


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(rest) < (int(length[1]) if length else 0):
            return
        self._data = b""
        wait = _WAIT.search(rest)
        target = _TARGET.search(head)
        if wait:
            asyncio.get_running_loop().call_later(int(wait[1]), self._transport.write, _EMPTY)
        else:
            self._transport.write(_PACKED.get(target[1] if target else b"", _EMPTY))


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
