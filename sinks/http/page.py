"""The files of the status page, read once and served with an ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from sinks.http.errors import ApiError
from sinks.http.responses import compressible

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page."""

    body: bytes
    content_type: str
    tag: str


@cache
def assets() -> Mapping[str, Asset]:
    """All files of `sinks/page` by name."""
    found: dict[str, Asset] = {}
    for file in (resources.files("sinks") / "page").iterdir():
        content_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, content_type, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')
    return found


async def index(request: Request) -> Response:
    """`GET /`."""
    return _serve(request, "index.html")


async def asset(request: Request) -> Response:
    """`GET /assets/{name}`."""
    return _serve(request, request.path_params["name"])


def _serve(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise ApiError(404, "not_found", f"the page has no file {name!r}", "open / in a browser")
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return compressible(found.body, found.content_type, request.headers.get("accept-encoding", ""), headers=headers)
