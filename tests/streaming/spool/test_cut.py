"""Files are cut into pieces of limited size without losing or splitting an event."""

from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from sources.wire.decode import decode_records
from sources.wire.encode import encode_arrow
from streaming.spool import cut as cutting
from streaming.spool.cut import cut, is_finished, kind_of
from streaming.spool.pieces import Piece
from streaming.spool.reading import Read, read_pieces
from tests.streaming.spark.packets import event, ndjson


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use pieces of kilobytes instead of megabytes."""
    monkeypatch.setattr(cutting, "PIECE_BYTES", 4_000)
    monkeypatch.setattr(cutting, "WHOLE_BYTES", 20_000)
    monkeypatch.setattr(cutting, "LONGEST_LINE", 2_000)
    monkeypatch.setattr(cutting, "_LOOK", 100)


def pieces(content: bytes, taken: int = 0) -> list[Piece]:
    return list(cut(BytesIO(content), "f", taken, len(content)))


def ids(folder: Path, content: bytes, taken: int = 0) -> list[str]:
    """Return the message ids of a file that is read piece by piece."""
    (folder / "f").write_bytes(content)
    found: list[str] = []
    for read in read_pieces(folder, pieces(content, taken)):
        assert isinstance(read, Read)
        decoded = decode_records(read.records.column("value"))
        assert not decoded.invalid
        found += decoded.events.column("message_id").to_pylist()
    return found


def events(count: int) -> list[dict[str, object]]:
    return [event("sent", f"m{n}", sent_at=1_700_000_000_000, reason="x" * (n % 50)) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 20, 21, 500])
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["ends with a line break", "ends without one"])
def test_lines_are_cut_between_lines(tmp_path: Path, count: int, ending: bytes) -> None:
    """This holds for every length, and when reading starts at any piece, as after a restart in the middle of a file."""
    content = ndjson(*events(count)).removesuffix(b"\n") + (ending if count else b"")
    parts = pieces(content)
    assert [piece.start for piece in parts] == [0, *(piece.end for piece in parts[:-1])]
    assert parts[-1].end == len(content)
    assert all(piece.end - piece.start < 4_400 for piece in parts)
    if count:
        assert ids(tmp_path, content) == [f"m{n}" for n in range(count)]
        middle = parts[len(parts) // 2]
        later = ids(tmp_path, content, middle.start)
        assert later == [f"m{n}" for n in range(count)][count - len(later) :]


@pytest.mark.parametrize("first", [b'{"v": 1, "type": "se', b"written by hand", b'"'])
def test_a_truncated_first_line_does_not_make_the_file_one_object(first: bytes) -> None:
    """The line is one invalid event, and all others are read, however long the file is."""
    content = first + b"\n" + ndjson(*events(500))
    assert len(content) > cutting.WHOLE_BYTES
    parts = pieces(content)
    assert all(piece.refusal is None and piece.end - piece.start < 4_400 for piece in parts)
    decoded = decode_records([content[piece.start : piece.end] for piece in parts])
    assert (len(decoded.events), len(decoded.invalid)) == (500, 1)


def test_a_piece_does_not_begin_with_a_line_that_would_make_it_an_array() -> None:
    """Such a line is one invalid event, wherever it is; a piece between two of them was refused as a whole."""
    lines = [line for one in events(200) for line in (ndjson(one), b"[1]\n")]
    content = b"".join(lines)
    parts = pieces(content)
    assert len(parts) > 5
    decoded = decode_records([content[piece.start : piece.end] for piece in parts])
    assert (len(decoded.events), decoded.refused.total()) == (200, 200)


def test_a_long_multi_line_object_is_refused_like_an_array() -> None:
    """It cannot be cut either."""
    (piece,) = pieces(json.dumps({"v": 1, "x": "y" * 21_000}, indent=1).encode())
    assert piece.refusal is not None


def test_an_endless_line_is_cut_anyway() -> None:
    """It is not an event and must not be held in memory."""
    content = b'{"v": 1, "x": "' + b"y" * 30_000
    parts = pieces(content)
    assert max(piece.end - piece.start for piece in parts) <= 4_000
    assert parts[-1].end == len(content)


@pytest.mark.parametrize("size", [3_000, 19_000, 21_000])
def test_an_array_is_read_whole_or_refused_as_one(size: int) -> None:
    """It cannot be cut without reading all of it."""
    content = json.dumps([{"x": "y" * size}], indent=1).encode()
    (piece,) = pieces(content)
    assert (piece.start, piece.end) == (0, len(content))
    assert (piece.refusal is not None) == (len(content) > 20_000)
    if piece.refusal is not None:
        assert piece.refusal.reason == "too_large"
        assert "one event a line" in piece.refusal.detail


def stream(count: int, rows: int, *, dictionaries: bool = True) -> bytes:
    """Return an Arrow stream with record batches of `rows` rows."""
    table = pa.ipc.open_stream(encode_arrow(events(count))).read_all().unify_dictionaries().combine_chunks()
    if not dictionaries:
        plain = [
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in table.columns
        ]
        table = pa.Table.from_arrays(plain, names=table.column_names)
    sink = BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


@pytest.mark.parametrize("dictionaries", [True, False])
def test_a_long_arrow_stream_is_cut_between_record_batches(tmp_path: Path, dictionaries: bool) -> None:
    """Each piece is read as a stream of its own, with the schema and the dictionaries in front."""
    content = stream(1_000, 20, dictionaries=dictionaries)
    assert len(content) > 20_000
    parts = pieces(content)
    assert len(parts) > 3
    assert parts[-1].end == len(content)
    assert ids(tmp_path, content) == [f"m{n}" for n in range(1_000)]
    later = ids(tmp_path, content, parts[2].start)
    assert later == [f"m{n}" for n in range(1_000)][-len(later) :]
    only_the_end = pieces(content, len(content) - 8)
    assert [(piece.start, piece.end) for piece in only_the_end] == [(len(content) - 8, len(content))]
    assert ids(tmp_path, content, len(content) - 8) == []


@pytest.mark.parametrize("dictionaries", [True, False])
def test_what_is_appended_to_a_short_arrow_stream_is_read(tmp_path: Path, dictionaries: bool) -> None:
    """It has no schema of its own. A record batch of which only a part was there is read again."""
    content = stream(40, 8, dictionaries=dictionaries)
    assert len(content) < cutting.WHOLE_BYTES
    ends = [message.end for message in cutting._messages(BytesIO(content), len(content))][-5:]
    for whole, end in enumerate(ends, start=1):
        for taken in (end, end + 4, end + 100):
            if taken < len(content):
                assert ids(tmp_path, content, taken) == [f"m{n}" for n in range(8 * whole, 40)]
    assert ids(tmp_path, content, 100) == [f"m{n}" for n in range(40)]


def test_what_is_appended_after_a_replaced_dictionary_is_not_read_with_the_first_one() -> None:
    """It is invalid, not wrong."""
    schema = pa.schema([("reason", pa.dictionary(pa.int32(), pa.string()))])
    sink = BytesIO()
    writer = pa.ipc.new_stream(sink, schema)
    for word in ("a", "b"):
        writer.write_batch(pa.record_batch([pa.array([word]).dictionary_encode()], schema=schema))
    taken = len(sink.getvalue())
    writer.write_batch(pa.record_batch([pa.array(["b"]).dictionary_encode()], schema=schema))
    writer.close()
    (piece,) = pieces(sink.getvalue(), taken)
    assert (piece.start, piece.prefix) == (taken, 0)


def test_an_arrow_stream_that_cannot_be_cut_is_refused_as_one() -> None:
    """The cases are a record batch above the limit, and bytes that are not a record batch."""
    (piece,) = [part for part in pieces(stream(1_000, 1_000)) if part.refusal is not None]
    assert piece.refusal is not None
    assert "a record batch of" in piece.refusal.detail
    noise = b"\xff\xff\xff\xff" + bytes(random.Random(1).randbytes(30_000))
    (piece,) = pieces(noise)
    assert piece.refusal is not None
    torn = stream(1_000, 20)[:-50]
    assert pieces(torn)[-1].end == len(torn)


@pytest.mark.parametrize("seed", range(200))
def test_the_pieces_cover_every_file(seed: int) -> None:
    """They are in order, without gaps and of limited size, even for a damaged Arrow stream."""
    draw = random.Random(seed)
    content = bytearray(draw.choice([stream(600, 20), ndjson(*events(300)), json.dumps(events(300)).encode()]))
    for _ in range(draw.randrange(20)):
        content[draw.randrange(len(content) if seed % 2 else 600)] = draw.randrange(256)
    parts = pieces(bytes(content))
    at = 0
    for piece in parts:
        # A stream of Arrow starts with its schema, which goes before every piece.
        assert piece.start == (at or piece.prefix)
        assert piece.end > piece.start
        assert piece.refusal is not None or piece.end - piece.start <= 20_000
        at = piece.end
    assert at == len(content)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"v": 1}\n{"v": 1}\n', "lines"),
        (b'{"v": 1}', "lines"),
        (b'\xef\xbb\xbf \n{"v": 1}\n', "lines"),
        (b'{\n "v": 1\n}\n', "whole"),
        (b' [{"v": 1}]', "whole"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00", "arrow"),
        (b"", "lines"),
    ],
)
def test_the_kind_of_a_file_is_known_from_its_beginning(content: bytes, kind: str) -> None:
    """The decoder uses the same rule."""
    assert kind_of(BytesIO(content)) == kind


@pytest.mark.parametrize(
    ("content", "finished"),
    [
        (b'{"v": 1}\n', True),
        (b'{"v": 1}', True),
        (b"[]", True),
        (b'{"v": 1', False),
        (b'{"v": 1}\n{"v"', False),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00abc", False),
        (b"abc\xff\xff\xff\xff\x00\x00\x00\x00", True),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00abc}", False),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00abc\n", False),
    ],
)
def test_an_unfinished_file_is_recognised_by_its_end(content: bytes, finished: bool) -> None:
    """This works in most cases."""
    assert is_finished(BytesIO(content), len(content)) == finished


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf" + b"\r\n" * 1_000, b" " * 999 + b"\xef\xbb\xbf"])
def test_an_array_is_known_after_any_number_of_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: bytes) -> None:
    """Ingest accepts such a body, and stores it as it came: cut as lines, its events would be lost."""
    monkeypatch.setattr(cutting, "_HEAD", 1_000)
    many = events(50)
    assert ids(tmp_path, mark + b" " * 3_000 + json.dumps(many).encode()) == [one["message_id"] for one in many]


def test_an_object_over_many_lines_is_known_after_any_number_of_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "_HEAD", 1_000)
    over_many = json.dumps(event("sent", "m0", more=["x" * 500] * 10), indent=1).encode()
    assert ids(tmp_path, b" " * 3_000 + over_many) == ["m0"]
