"""The minimal aiohttp proxy, for comparison: `python -m tests.benchmarks.proxy.bare UPSTREAM`. Prints its address."""

from __future__ import annotations

import asyncio
import gc
import sys

import aiohttp
import uvloop
from aiohttp import web


async def _serve(upstream: str) -> None:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")}
        async with session.post(upstream + request.path, data=body, headers=headers) as answer:
            content = await answer.read()
            return web.Response(status=answer.status, body=content, headers={"Content-Type": answer.headers["Content-Type"]})

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    print(f"listening on 127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
