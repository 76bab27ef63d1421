"""Split a STOMP byte stream into frames, and parse the many MESSAGE frames among them quickly.

A busy broker sends thousands of advisories per second, and stomp.py's own parser, which handles all of STOMP,
takes more time than everything else here together. Frames other than MESSAGE are passed on to it
unchanged.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_FRAME: Final = 128 << 20
"""In bytes. The broker's own limit is 100 MiB, unless it is configured otherwise."""

_ESCAPED = re.compile(r"\\[rnc\\]")
_MEANING = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}

Frame = tuple[dict[str, str], bytes]
"""Headers and body of a MESSAGE."""


class FrameCutter:
    """Keeps the rest of an incomplete frame from one chunk to the next."""

    def __init__(self, longest: int = LONGEST_FRAME) -> None:
        self._longest = longest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> tuple[list[Frame], bytes]:
        """Return the MESSAGE frames completed by `data`, and the unchanged bytes of other complete frames and heartbeats.

        Raises `ValueError` for a frame that is too long, or has a content length that is no number of bytes: where the next frame
        begins is unknown then.
        """
        buffer = self._buffer
        buffer += data
        messages: list[Frame] = []
        others = bytearray()
        start = 0
        while start < len(buffer):
            if buffer[start] in b"\r\n":
                # A heartbeat, or the line end allowed after a frame.
                others.append(buffer[start])
                start += 1
                continue
            end = self._end(start)
            if end is None:
                if len(buffer) - start > self._longest:
                    raise ValueError(f"a frame is longer than {self._longest:,} bytes")
                break
            headers_end, body_start, body_end = end
            if buffer.startswith(b"MESSAGE\n", start) or buffer.startswith(b"MESSAGE\r\n", start):
                headers = parse_headers(bytes(buffer[start:headers_end]))
                messages.append((headers, bytes(buffer[body_start:body_end])))
            else:
                others += buffer[start : body_end + 1]
            start = body_end + 1
        del buffer[:start]
        return messages, bytes(others)

    def _end(self, start: int) -> tuple[int, int, int] | None:
        """Return the end of the headers, and start and end of the body; None while the frame is incomplete."""
        buffer = self._buffer
        headers_end = buffer.find(b"\n\n", start)
        body_start = headers_end + 2
        with_returns = buffer.find(b"\n\r\n", start, headers_end if headers_end >= 0 else len(buffer))
        if with_returns >= 0:
            headers_end, body_start = with_returns, with_returns + 3
        if headers_end < 0:
            return None
        length_at = buffer.find(b"\ncontent-length:", start, headers_end)
        if length_at >= 0:
            line_end = buffer.find(b"\n", length_at + 16, headers_end)
            length = int(buffer[length_at + 16 : line_end if line_end >= 0 else headers_end])
            if length < 0:
                raise ValueError(f"content-length:{length}")
            if length > self._longest:
                raise ValueError(f"a frame is longer than {self._longest:,} bytes: content-length:{length}")
            body_end = body_start + length
            return None if body_end >= len(buffer) else (headers_end, body_start, body_end)
        body_end = buffer.find(b"\0", body_start)
        return None if body_end < 0 else (headers_end, body_start, body_end)


def parse_headers(head: bytes) -> dict[str, str]:
    """Parse the headers in a frame's first lines. The first occurrence of a repeated header counts."""
    headers: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").split("\n")[1:]:
        name, _, value = line.removesuffix("\r").partition(":")
        if "\\" in line:
            name, value = _ESCAPED.sub(_unescape, name), _ESCAPED.sub(_unescape, value)
        headers.setdefault(name, value)
    return headers


def _unescape(found: re.Match[str]) -> str:
    return _MEANING[found[0]]
