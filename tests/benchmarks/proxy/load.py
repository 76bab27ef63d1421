"""Sends calls to a proxy over several connections; each connection waits for the answer before its next call."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from tests.benchmarks.proxy.upstream import BODY, HANDLE

_QUEUE = "/123456789012/orders"
_CREDENTIAL = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00"


@dataclass
class Result:
    """Durations of a run of calls."""

    calls: int
    seconds: float
    latencies_ms: list[float]

    def percentile(self, share: float) -> float:
        """Return a latency percentile in milliseconds."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def request(operation: str, host: str, **params: object) -> bytes:
    """Build a request as an SDK sends it."""
    body = json.dumps({"QueueUrl": f"http://{host}{_QUEUE}", **params}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Target: AmazonSQS.{operation}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\nUser-Agent: Boto3/1.40 md/Botocore#1.40 os/linux\r\n"
        "X-Amz-Date: 20260101T000000Z\r\namz-sdk-invocation-id: 5f1c9d5e-2f5d-4a59-8f0a-4c39f7d2b001\r\n"
        f"amz-sdk-request: attempt=1\r\nAuthorization: {_CREDENTIAL}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def life(host: str) -> list[bytes]:
    """A message is sent, received and deleted."""
    return [
        request("SendMessage", host, MessageBody=BODY),
        request("ReceiveMessage", host, MaxNumberOfMessages=1),
        request("DeleteMessage", host, ReceiptHandle=HANDLE),
    ]


async def call(address: str, requests: list[bytes], calls: int, connections: int, pause_s: float = 0.0) -> Result:
    """Make `calls` calls, taken in turn from `requests`, over `connections` connections."""
    host, _, port = address.rpartition(":")
    latencies: list[float] = []
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]

    async def one(number: int) -> None:
        reader, writer = opened[number]
        for n in range(number, calls, connections):
            began_s = time.perf_counter()
            writer.write(requests[(n // connections) % len(requests)])
            await read_answer(reader)
            latencies.append((time.perf_counter() - began_s) * 1000)
            if pause_s:
                await asyncio.sleep(pause_s)

    began_s = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(connections)))
    took_s = time.perf_counter() - began_s
    for _, writer in opened:
        writer.close()
    return Result(len(latencies), took_s, latencies)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read the body of a response with status 200."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(head.decode())
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))
