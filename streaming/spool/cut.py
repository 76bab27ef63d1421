"""Cut a file into pieces that fit a task: text between lines, Arrow streams between record batches.

Only some kilobytes of the file are kept in memory while a cut is searched.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, NamedTuple

from sources.wire.arrow import STREAM_MARK
from sources.wire.arrow_sizes import DICTIONARY_BATCH, RECORD_BATCH, SCHEMA, message_kind_and_body
from sources.wire.event_json import BYTE_ORDER_MARK
from streaming.spool.pieces import Piece, Refusal

PIECE_BYTES: Final = 8 << 20
"""The approximate size of a piece. A file up to this size is one piece, whatever it holds."""

WHOLE_BYTES: Final = 64 << 20
"""The longest file that is read whole when it cannot be cut: a JSON array, one object over many lines, one Arrow batch."""

LONGEST_LINE: Final = 16 << 20
"""How far the end of a line is searched; a longer line is cut anywhere, and its parts are invalid events."""

ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_HEAD: Final = 64 << 10
_LOOK: Final = 64 << 10
_LONGEST_METADATA: Final = 16 << 20

Kind = Literal["lines", "whole", "arrow"]


def kind_of(file: BinaryIO) -> Kind:
    """Return how a file can be cut, by its first bytes."""
    file.seek(0)
    if file.read(4) == STREAM_MARK:
        return "arrow"
    text = _first_text(file)
    if text[:1] == b"[":
        return "whole"
    line, newline, rest = text.partition(b"\n")
    # An object over many lines starts with a line that does not end it. If the next line starts an object, the first is
    # truncated.
    over_many = newline and not line.rstrip().endswith(b"}") and rest.lstrip()[:1] != b"{"
    return "whole" if over_many else "lines"


def _first_text(file: BinaryIO) -> bytes:
    """Return the first bytes after blanks and a byte order mark, however many blanks there are."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(_HEAD)
        text = head.removeprefix(BYTE_ORDER_MARK).lstrip(b" \t\r\n")
        if len(text) == len(head):
            return text
        at += len(head) - len(text)


def is_finished(file: BinaryIO, size: int) -> bool:
    """Whether the last bytes are those of a completely written file."""
    file.seek(0)
    is_arrow = file.read(len(STREAM_MARK)) == STREAM_MARK
    file.seek(max(0, size - len(ARROW_END)))
    tail = file.read(len(ARROW_END))
    # Any byte may be the last one of a part of an Arrow stream.
    return tail == ARROW_END or (not is_arrow and tail[-1:] in (b"\n", b"}", b"]"))


def cut(file: BinaryIO, name: str, taken: int, size: int) -> Iterator[Piece]:
    """Yield the pieces of a file of `size` bytes after its first `taken`, in order and without gaps. Raises `OSError`."""
    if size - taken <= PIECE_BYTES and taken == 0:
        yield Piece(name, 0, size)
        return
    kind = kind_of(file)
    if kind == "lines":
        yield from _lines(file, name, taken, size)
    elif size <= WHOLE_BYTES and kind == "arrow" and taken:
        yield _appended_arrow(file, name, taken, size)
    elif size <= WHOLE_BYTES:
        yield Piece(name, taken, size)
    elif kind == "arrow":
        yield from _arrow(file, name, taken, size)
    else:
        yield Piece(
            name,
            taken,
            size,
            refusal=Refusal("too_large", f"a JSON text of {size} bytes; {WHOLE_BYTES} are the limit: write one event a line"),
        )


def _lines(file: BinaryIO, name: str, taken: int, size: int) -> Iterator[Piece]:
    start = taken
    while start < size:
        end = size if size - start <= PIECE_BYTES else _line_end(file, start + PIECE_BYTES, size)
        yield Piece(name, start, end)
        start = end


def _line_end(file: BinaryIO, at: int, size: int) -> int:
    """Return the position after a line break from `at` on, best before an object; `at` itself where none is near.

    A piece that begins and ends with a bracket would be read as one array, whatever its lines are.
    """
    file.seek(at)
    looked = line_end = at
    before = b""
    while looked < min(size, at + LONGEST_LINE):
        some = file.read(_LOOK)
        if not some:
            break
        found = (before + some).find(b"\n{")
        if found >= 0:
            return looked - len(before) + found + 1
        if line_end == at:
            line_end = looked + some.find(b"\n") + 1 if b"\n" in some else at
        looked += len(some)
        before = some[-1:]
    return size if line_end == at and looked >= size else line_end


class _Message(NamedTuple):
    kind: int
    start: int
    end: int


def _arrow(file: BinaryIO, name: str, taken: int, size: int) -> Iterator[Piece]:
    """Group record batches up to the size of a piece, each piece preceded by the schema and the dictionaries."""
    prefix = start = end = 0
    for message in _messages(file, size):
        if message.kind != RECORD_BATCH:
            if end:
                break
            prefix = message.end
        elif message.end <= taken:
            start = end = message.end
        elif message.end - message.start > WHOLE_BYTES:
            if end > start:
                yield Piece(name, start, end, prefix)
            yield _refused(name, message.start, message.end, f"a record batch of {message.end - message.start} bytes")
            start = end = message.end
        else:
            if end - start >= PIECE_BYTES:
                yield Piece(name, start, end, prefix)
                start = end
            start = start or message.start
            end = message.end
    if size - end > len(ARROW_END):
        if end > start:
            yield Piece(name, start, end, prefix)
        yield _refused(name, max(end, taken), size, "something else than record batches after the first of them")
    else:
        yield Piece(name, start, size, prefix)


def _appended_arrow(file: BinaryIO, name: str, taken: int, size: int) -> Piece:
    """Return what follows the record batches in the first `taken` bytes of a stream, preceded by the schema and dictionaries."""
    head: list[_Message] = []
    rest: list[_Message] = []
    for message in _messages(file, size):
        (rest if rest or message.kind == RECORD_BATCH else head).append(message)
    read = [message for message in rest if message.end <= taken]
    if not head or any(message.kind != RECORD_BATCH for message in read):
        # What follows may depend on a dictionary that was replaced on the way: with the first one it would be read wrongly.
        return Piece(name, taken, size)
    return Piece(name, read[-1].end if read else head[-1].end, size, head[-1].end)


def _refused(name: str, start: int, end: int, what: str) -> Piece:
    detail = f"an Arrow stream longer than {WHOLE_BYTES} bytes with {what}; write smaller files"
    return Piece(name, start, end, refusal=Refusal("too_large", detail))


def _messages(file: BinaryIO, size: int) -> Iterator[_Message]:
    """Yield the position of each message of an IPC stream, up to its end mark or to bytes that are not a message."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        mark, length = struct.unpack("<4sI", file.read(8))
        if mark != STREAM_MARK or not 0 < length <= _LONGEST_METADATA:
            return
        metadata = file.read(length)
        try:
            kind, body = message_kind_and_body(metadata)
        except ValueError:
            return
        end = at + 8 + length + body
        if kind not in (SCHEMA, DICTIONARY_BATCH, RECORD_BATCH) or end > size:
            return
        yield _Message(kind, at, end)
        at = end
