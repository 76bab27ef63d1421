"""The compiled scan reads flat lines, leaves the others to the parser, and never accesses memory outside its buffers."""

from __future__ import annotations

import ctypes
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sources.wire import blocks, decode_records, encode_ndjson
from sources.wire import scan as scanning
from sources.wire.blocks import BlockParser
from sources.wire.lines import Lines, split_lines
from sources.wire.scan import scan
from tests.sources.wire.reference import decode_slowly

T = 1_760_000_000_000


def agree(values: list[bytes | None]) -> None:
    """Compare the fast decoder with the reference; what the scan leaves is read in blocks, however small."""
    with patch.object(blocks, "FEW_LINES", 0):
        decoded = decode_records(values)
    events, refused = decode_slowly(values)
    rows = zip(decoded.record_index.tolist(), decoded.line.tolist(), decoded.events.to_pylist(), strict=True)
    found = [(r, line, {k: v for k, v in row.items() if v is not None and k != "attributes"}) for r, line, row in rows]
    expected = [(r, line, {k: v for k, v in event.items() if k != "attributes"}) for r, line, event in events]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    reported = [(i.record, i.line, i.reason) for i in decoded.invalid]
    assert sorted(reported, key=repr) == sorted(refused, key=repr)


texts = st.one_of(
    st.sampled_from(["orders", "q", "", "exactly12byt", "thirteen-byte", "12345678", "ümlaut-queue-name", "é" * 300, "x" * 600]),
    st.text(alphabet='ab,:{}[] \\"\t\n\x00\x1f\x7fé', max_size=6),
    st.sampled_from(["a\\u0041", "a\\", '\\"', "\\ud800", 'a","queue":"b', 'a":1,"at":2,"']),
)
numbers = st.one_of(
    st.integers(T, T + 999).map(str),
    st.sampled_from(
        ["0", "7", "00", "01", "-1", "-0", "1.0", "1e3", "", " 1", "1 ", "+1", "0x1", "null", "true", "[1]", "[]", "{}"]
    ),
    st.sampled_from([str(2**31 - 1), str(2**31), str(10**15), str(10**16 - 1), str(10**16), str(2**63), "9" * 30]),
    st.text(alphabet="0123456789/:;-+.eE", min_size=1, max_size=18),
)
booleans = st.sampled_from(["true", "false", "truE", "falsy", "fals", "trues", "null", "1", "tru", ""])
LIKE = [
    '{{"v":1,"type":"sent","at":{n0},"system":"aws_sqs","queue":"{t0}","message_id":"{t1}"}}',
    '{{"v": 1, "type": "received", "at": {n0}, "system": "{t0}", "queue": "q", "message_id": "m", "receive_count": {n1}}}',
    '{{"type":"sent","at":{n0},"system":"s","queue":"q","message_id":"m","ordered":{b0}}}',
    '{{"type":"sent","at":1760000000000,"system":"s","queue":"q","message_id":"m","sent_at":{n0},"group":"{t0}","x":{n1}}}',
    '{{"type":"{t0}","at":1760000000000,"consumer":"{t1}","unknown":"{t2}"}}',
    '{{"consumer":"c","at":{n0},"type":"heartbeat","y":{b0} }}',
    '{{"v":{n1},"type":"heartbeat","at":{n0},"scope":"{t0}","consumer":"c","system":"{t1}"}}',
]


@st.composite
def ndjson(draw: st.DrawFn) -> bytes:
    """Generate NDJSON with few kinds of lines and arbitrary values, sometimes damaged elsewhere."""
    kinds = draw(st.lists(st.sampled_from(LIKE), min_size=1, max_size=2))
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        values = {f"n{i}": draw(numbers) for i in range(2)} | {f"t{i}": draw(texts) for i in range(3)} | {"b0": draw(booleans)}
        line = draw(st.sampled_from(kinds)).format(**values).encode("utf-8", "surrogatepass").replace(b"\n", b"")
        if draw(st.integers(0, 7)) == 0:
            at = draw(st.integers(0, len(line)))
            line = line[:at] + draw(st.binary(max_size=2)).replace(b"\n", b"") + line[at + draw(st.integers(0, 2)) :]
        lines.append(line)
    return draw(st.sampled_from([b"\n", b"\r\n"])).join(lines)


_BEATS = (b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"}\n' % T) * 6


@pytest.fixture(autouse=True)
def _compiled(compiled_scan: None) -> None:
    """These tests need the compiled scan."""


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(ndjson(), min_size=1, max_size=3))
@example([b'{"at":1}', b'{"at":1760000000000,"type":"heartbeat","consumer":"c"}'])
@example([(b'{"type":"heartbeat","consumer":"c","at":%d}\n' % T) * 3 + b'{"type":"heartbeat","consumer":"c","at":/}'])
@example([(b'{"type":"heartbeat","consumer":"c","at":%d}\n' % T) * 3 + b'{"type":"heartbeat","consumer":"\xff","at":1}'])
@example([_BEATS + b'{{"type":"heartbeat","consumer":"c","at":%d,"x":"y"}' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"1}' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x": "y"}' % T])
def test_the_scan_never_changes_the_result(values: list[bytes | None]) -> None:
    """The reference decoder reads one line at a time."""
    agree(values)


def lines_of(value: bytes) -> Lines:
    return split_lines(value, np.zeros(1, np.int64))


def test_a_typical_stream_is_read_by_the_scan_alone() -> None:
    """For a few kinds of events with any values, no line is left to the parser and every value is right."""
    generator = np.random.default_rng(1)
    events: list[dict[str, Any]] = []
    for n in range(6000):
        event: dict[str, Any] = {"v": 1, "type": "deleted", "at": T + n, "system": "aws_sqs", "queue": f"q-{n % 7}"}
        event["message_id"] = f"{int(generator.integers(0, 2**60)):x}"
        if n % 3 == 0:
            event |= {"type": "received", "receive_count": n % 5 + 1, "sent_at": T - n, "ordered": n % 2 == 0}
        elif n % 3 == 1:
            event |= {"type": "sent", "group": "größe" * (n % 4 + 1), "scope": f"account-{n}"}
        events.append(event)
    value = encode_ndjson(events)
    found = scan(lines_of(value.rstrip(b"\n")))
    assert found is not None
    assert found[0].all()
    rows = [{k: v for k, v in row.items() if v is not None} for row in found[1].to_pylist()]
    assert rows == events
    assert len(decode_records([value]).events) == 6000


def test_rows_are_in_the_order_of_the_lines() -> None:
    """Lines left to the parser in between do not change the order."""
    lines = [b'{"at":%d,"queue":"%s"}' % (n, b"q" * (n % 9)) if n % 3 else b'{"at":-%d}' % n for n in range(200)]
    found = scan(lines_of(b"\n".join(lines)))
    assert found is not None
    read, table = found
    assert read.tolist() == [n % 3 != 0 for n in range(200)]
    assert table["at"].to_pylist() == [n for n in range(200) if n % 3]
    assert table["queue"].to_pylist() == ["q" * (n % 9) for n in range(200) if n % 3]


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ('{"at":1}', True),
        (' {"at":1}', False),
        ('{ "at"\t: 1 , "queue" : "q" }', True),
        ('{"at":0}', True),
        ('{"at":9999999999999999}', True),
        ('{"at":10000000000000000}', False),
        ('{"at":01}', False),
        ('{"at":-1}', False),
        ('{"at":1.0}', False),
        ('{"at":1e3}', False),
        ('{"at":"1"}', False),
        ('{"at":true}', False),
        ('{"at":null}', False),
        ('{"at":1,"at":1}', False),
        ('{"at":1,}', False),
        ('{"at":1}}', False),
        ('{"at":1}{"at":1}', False),
        ('{"at":1', False),
        ('{"at":1,"queue":"q', False),
        ('{"at":1 "queue":"q"}', False),
        ('{"receive_count":2147483647}', True),
        ('{"receive_count":2147483648}', False),
        ('{"ordered":true}', True),
        ('{"ordered":false}', True),
        ('{"ordered":falsey}', False),
        ('{"ordered":tru}', False),
        ('{"ordered":1}', False),
        ('{"queue":"größe"}', True),
        ('{"queue":""}', True),
        ('{"queue":"\\u0041"}', False),
        ('{"queue":"\x01"}', False),
        ('{"queue":"\x7f"}', True),
        ('{"queue":7}', False),
        ('{"\\u0061t":1,"v":1}', False),
        ('{"at":1,"unknown":"x","other":7,"third":true}', True),
        ('{"at":1,"unknown":[1]}', False),
        ('{"at":1,"unknown":{}}', False),
        ('{"at":1,"unknown":null}', False),
        ('{"attributes":{}}', False),
        ('{"attributes":"x"}', False),
        ('{"unknown":1}', False),
        ("{}", False),
        ("[1]", False),
        ("", False),
    ],
)
def test_which_lines_the_scan_reads(line: str, reads: bool) -> None:
    """Each line is the whole buffer, so the scan must stop at its end."""
    raw = line.encode()
    found = scan(Lines(raw, np.array([0]), np.array([len(raw)]), np.array([0]), np.array([1])))
    assert found is not None
    assert found[0].tolist() == [reads]
    assert found[1].num_rows == reads


def test_strings_of_every_length_end_correctly() -> None:
    """Eight bytes are examined at a time; the end of a string may be at any of them."""
    for length in range(40):
        for stop, reads in (('"', True), ("\\", False), ("\x1f", False), ("é", True)):
            line = f'{{"queue":"{"x" * length}{stop}{"" if stop == chr(34) else chr(34)}}}'
            found = scan(lines_of(line.encode()))
            assert found is not None
            assert found[0].tolist() == [reads], line
            if reads:
                assert found[1]["queue"].to_pylist() == ["x" * length + stop.strip('"')]


def test_strings_that_share_a_hash_slot_are_distinguished() -> None:
    """Ten thousand names, each given twice, have as many codes as names."""
    names = [f"queue-{n}" for n in range(10_000)]
    found = scan(lines_of(b"\n".join(b'{"queue":"%s"}' % name.encode() for name in names * 2)))
    assert found is not None
    column = found[1]["queue"].combine_chunks()
    assert column.to_pylist() == names * 2
    assert len(column.dictionary) == len(names)


def hash_of(text: bytes, key: npt.NDArray[np.uint64]) -> int:
    """The scan's hash of a string."""
    assert scanning._C is not None
    function = scanning._C.hash_of
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p], ctypes.c_uint64
    return int(function(text, len(text), key.ctypes.data))


def test_strings_are_hashed_as_python_hashes_them() -> None:
    """With SipHash, and here with the key of `PYTHONHASHSEED=0`, which is zero."""
    texts = [bytes(range(65, 65 + length)) for length in range(1, 42)]
    program = f"print([hash(text) % 2**64 for text in {texts!r}])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    no_key = np.zeros(2, np.uint64)
    assert [hash_of(text, no_key) for text in texts] == json.loads(done.stdout)
    assert len({hash_of(b"text", key) for key in (no_key, no_key + 1, scanning._HASH_KEY)}) == 3


def test_strings_are_placed_by_the_secret_key() -> None:
    """A sender who does not know it cannot choose strings that are all looked for in the same place."""
    begins, lengths, present, mask = np.array([0], np.int64), np.array([4], np.int32), np.array([1], np.uint32), 1023

    def place(key: npt.NDArray[np.uint64]) -> int:
        assert scanning._C is not None
        codes, firsts, slots = np.empty(1, np.int32), np.empty(1, np.int64), np.full(mask + 1, -1, np.int32)
        found = (codes.ctypes.data, firsts.ctypes.data, slots.ctypes.data)
        scanning._C.encode(
            *(b"text", 1, present.ctypes.data, 1, begins.ctypes.data, lengths.ctypes.data, *found, mask, key.ctypes.data)
        )
        return int(np.flatnonzero(slots == 0)[0])

    keys = [np.array([n, 7], np.uint64) for n in range(5)]
    assert [place(key) for key in keys] == [hash_of(b"text", key) & mask for key in keys]
    assert len({place(key) for key in keys}) > 1


def test_what_the_scan_reads_is_not_parsed_again() -> None:
    """pyarrow's parser and the slow reader get only the lines the scan leaves."""
    lines = [b'{"v":1,"type":"heartbeat","at":%d,"consumer":"c"}' % (T + n) for n in range(99)]
    with patch.object(BlockParser, "_split", side_effect=AssertionError("parsed again")):
        assert len(decode_records([b"\n".join(lines)]).events) == 99
        with pytest.raises(AssertionError, match="parsed again"):
            decode_records([b"\n".join([*lines, lines[0].replace(b'"c"', b"null")])])


def test_everything_is_read_without_a_compiler() -> None:
    """Decoding is only slower."""
    values: list[bytes | None] = [encode_ndjson([{"v": 1, "type": "heartbeat", "at": T + n, "consumer": "c"} for n in range(99)])]
    with patch.object(scanning, "_C", None):
        assert scan(lines_of(b'{"at":1}')) is None
        agree(values)


def test_a_library_of_another_version_is_not_called() -> None:
    """Its functions may have other parameters and would read and write out of bounds."""
    assert scanning._library() is not None
    with patch.object(scanning, "_VERSION", scanning._VERSION + 1):
        assert scanning._library() is None


def damaged(count: int) -> Iterator[bytes]:
    """Yield event lines in which bytes were changed, lost or doubled; some end early."""
    generator = random.Random(5)
    whole = b'{"v":1,"type":"received","at":1760000000000,"queue":"%s","ordered":true,"receive_count": 17 ,"group":"gr"}'
    strange = b'"\\{}:,\x00\x1f \t019etf\x7f'
    for _ in range(count):
        line = bytearray(whole % (b"orders-%d" % generator.randrange(10 ** generator.randrange(1, 12))))
        for _ in range(generator.randrange(4)):
            at = generator.randrange(len(line))
            line[at : at + generator.randrange(3)] = bytes(generator.choices(strange, k=generator.randrange(3)))
        yield bytes(line[: generator.randrange(len(line) + 1) if generator.random() < 0.5 else None])


@pytest.mark.slow
def test_the_scan_stays_within_its_buffers(tmp_path: Path) -> None:
    """It runs over damaged lines, compiled with AddressSanitizer and the undefined behaviour checks."""
    compiler = shutil.which("cc")
    assert compiler is not None
    checker = tmp_path / "check"
    flags = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = Path(__file__).with_name("scan_check.c")
    subprocess.run([compiler, *flags, str(source), "-o", str(checker)], check=True)
    lines = [line.replace(b"\n", b"") for line in damaged(20_000)]
    # The first half is scanned line by line, with no bytes after the line; the rest in blocks of 64 lines.
    alone, together = lines[:10_000], [lines[i : i + 64] for i in range(10_000, 20_000, 64)]
    blocks = [*alone, *(b"\n".join(some) for some in together)]
    given = b"".join(len(block).to_bytes(4, "little") + block for block in blocks)
    done = subprocess.run([str(checker)], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    read = sum(bool(found[0].all()) for line in lines if line and (found := scan(lines_of(line))) is not None)
    assert done.stdout.split() == [b"%d" % len(lines), b"%d" % read]
    assert 0 < read < len(lines)
