"""The bytes of a recording, from a file or standard input: gzip is decompressed, other binary content is refused."""

from __future__ import annotations

import errno
import gzip
import re
import sys
import zlib
from pathlib import Path
from typing import Final, TextIO

from sources.wire.arrow import STREAM_MARK
from sources.wire.event_json import BYTE_ORDER_MARK, GZIP
from streaming.replay.errors import ReplayError

STANDARD_INPUT: Final = "-"
FORMS: Final = "NDJSON, JSON or Arrow IPC, plain or gzip"

_PACKED: Final = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
}
_ARROW_FILE: Final = b"ARROW1"
_ARRAY_LINE: Final = re.compile(rb"^\[.*\][ \t\r]*$", re.MULTILINE)
_ARRAY_OVER_LINES: Final = re.compile(rb"\s*\[.*[^\]\s]\s*\n")
"""A first line that begins an array and does not end it: the lines that follow are parts of it."""


def _standard_input() -> bytes:
    stream: TextIO | None = sys.stdin
    if stream is None:  # as after `<&-` in a shell
        raise OSError(errno.EBADF, "it is closed")
    return stream.buffer.read()


def read_content(path: Path) -> bytes:
    """Read `path`, or standard input for `-`. Raises `ReplayError` that names the file and the fix."""
    try:
        content = _standard_input() if str(path) == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise ReplayError(f"{name_of(path)}: {error.strerror or error}: give a file of recorded events") from error
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ReplayError(f"{name_of(path)}: damaged or truncated gzip ({error}): record or copy it again") from error
    for magic, (kind, command) in _PACKED.items():
        if content.startswith(magic):
            raise ReplayError(f"{name_of(path)} is compressed ({kind}): {command} {path} | queuewatch replay -")
    return content


def records_by_line(content: bytes) -> dict[int, bytes] | None:
    """Return each line as a record, by its number, if some lines are JSON arrays: the values of records that held an array each.

    Return None for any other content, which is one record.
    """
    text = content.removeprefix(BYTE_ORDER_MARK)
    if text.startswith(STREAM_MARK) or _ARRAY_OVER_LINES.match(text) or not _ARRAY_LINE.search(text):
        return None
    lines = {number: line for number, line in enumerate(text.split(b"\n"), start=1) if line.strip()}
    return lines if len(lines) > 1 else None


def name_of(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def refuse_binary(path: Path, content: bytes) -> None:
    """Raise `ReplayError` if the content is neither text nor an Arrow stream. Call it only if nothing could be decoded."""
    if content.startswith(STREAM_MARK):
        return
    if content.startswith(_ARROW_FILE):
        raise ReplayError(f"{name_of(path)} is an Arrow file; write it as an Arrow IPC stream")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ReplayError(f"{name_of(path)} is binary and contains no event: give a file of recorded events ({FORMS})")
