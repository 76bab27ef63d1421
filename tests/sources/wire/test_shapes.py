"""Lines that are alike are read at once, and a line that only looks alike is not mistaken for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sources.wire import blocks, decode_records, encode_ndjson, shapes
from sources.wire.cutting import Buffer, whole_numbers
from sources.wire.lines import split_lines
from sources.wire.shapes import ShapeReader, template_of
from tests.sources.wire.reference import decode_slowly

T = 1_760_000_000_000


@contextmanager
def from_the_first_line_on() -> Iterator[None]:
    """Read even the smallest block by likeness, and what is unlike in blocks too."""
    with patch.object(shapes, "FEWEST_LINES", 1), patch.object(blocks, "FEW_LINES", 0):
        yield


def agree(values: list[bytes | None]) -> None:
    """The fast decoder and the obvious one say the same."""
    with from_the_first_line_on():
        decoded = decode_records(values)
    events, refused = decode_slowly(values)
    rows = zip(decoded.record_index.tolist(), decoded.line.tolist(), decoded.events.to_pylist(), strict=True)
    found = [(r, line, {k: v for k, v in row.items() if v is not None and k != "attributes"}) for r, line, row in rows]
    expected = [(r, line, {k: v for k, v in event.items() if k != "attributes"}) for r, line, event in events]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    told = [(i.record, i.line, i.reason) for i in decoded.invalid]
    assert sorted(told, key=repr) == sorted(refused, key=repr)


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
truths = st.sampled_from(["true", "false", "truE", "falsy", "fals", "trues", "null", "1", "tru", ""])
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
def alike(draw: st.DrawFn) -> bytes:
    """NDJSON of few kinds of lines with arbitrary text where values stand, now and then damaged elsewhere."""
    kinds = draw(st.lists(st.sampled_from(LIKE), min_size=1, max_size=2))
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        values = {f"n{i}": draw(numbers) for i in range(2)} | {f"t{i}": draw(texts) for i in range(3)} | {"b0": draw(truths)}
        line = draw(st.sampled_from(kinds)).format(**values).encode("utf-8", "surrogatepass").replace(b"\n", b"")
        if draw(st.integers(0, 7)) == 0:
            at = draw(st.integers(0, len(line)))
            line = line[:at] + draw(st.binary(max_size=2)).replace(b"\n", b"") + line[at + draw(st.integers(0, 2)) :]
        lines.append(line)
    good = LIKE[0].format(n0=T, t0="q", t1="m").encode()
    # Enough likeness that the reader does not give up.
    return draw(st.sampled_from([b"\n", b"\r\n"])).join([good, *lines, *[good] * 4])


_BEATS = (b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"}\n' % T) * 6


@settings(max_examples=200, deadline=None)
@given(st.lists(alike(), min_size=1, max_size=3))
@example([b'{"at":1}', b'{"at":1760000000000,"type":"heartbeat","consumer":"c"}'])
@example([(b'{"type":"heartbeat","consumer":"c","at":%d}\n' % T) * 3 + b'{"type":"heartbeat","consumer":"c","at":/}'])
@example([(b'{"type":"heartbeat","consumer":"c","at":%d}\n' % T) * 3 + b'{"type":"heartbeat","consumer":"\xff","at":1}'])
@example([_BEATS + b'{{"type":"heartbeat","consumer":"c","at":%d,"x":"y"}' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"1}' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x":"y"' % T])
@example([_BEATS + b'{"type":"heartbeat","consumer":"c","at":%d,"x": "y"}' % T])
def test_likeness_never_changes_what_is_said(values: list[bytes | None]) -> None:
    """Against the decoder that reads one line at a time."""
    agree(values)


def test_a_usual_stream_is_read_by_likeness_alone() -> None:
    """A few kinds of events, any values: no line is left to the parser, and every value is right."""
    generator = np.random.default_rng(1)
    events: list[dict[str, Any]] = []
    for n in range(6000):
        event: dict[str, Any] = {"v": 1, "type": "deleted", "at": T + n, "system": "aws_sqs", "queue": f"q-{n % 7}"}
        event["message_id"] = f"{int(generator.integers(0, 2**60)):x}"
        if n % 3 == 0:
            event |= {"type": "received", "receive_count": n % 5 + 1, "sent_at": T - n, "ordered": n % 2 == 0}
        elif n % 3 == 1:
            event |= {"type": "sent", "group": "größe" * (n % 4 + 1)}
        events.append(event)
    value = encode_ndjson(events)
    lines = split_lines(value.rstrip(b"\n"), np.zeros(1, np.int64))
    found = ShapeReader().read(lines)
    assert found is not None
    assert found[0].all()
    rows = [{k: v for k, v in row.items() if v is not None} for row in found[1].to_pylist()]
    assert rows == events
    assert len(decode_records([value]).events) == 6000


def test_many_scopes_do_not_need_a_template_each() -> None:
    """With a few, each stands in its templates; from the block on in which there are more, scopes are cut out of the lines."""
    reader = ShapeReader()
    for scopes, templates in ((3, 3), (5, 1), (40, 1)):
        events = [
            {"v": 1, "type": "heartbeat", "at": T + n, "scope": f"account-{n % scopes}", "consumer": f"c{n}"} for n in range(4000)
        ]
        found = reader.read(split_lines(encode_ndjson(events).rstrip(b"\n"), np.zeros(1, np.int64)))
        assert found is not None
        assert found[0].all()
        rows = [{k: v for k, v in row.items() if v is not None} for row in found[1].to_pylist()]
        assert rows == events
        assert len(reader._templates) == templates


def test_a_version_too_long_for_a_number_makes_no_template() -> None:
    """It stands in the template, but is a number all the same."""
    for version, makes in ((b"1", True), (b"0", True), (b"01", False), (b"9" * 16, True), (b"9" * 17, False)):
        template = template_of(b'{"v":%s,"type":"heartbeat","at":1}' % version)
        assert (template is not None) == makes
        assert template is None or template.constants == {"v": int(version), "type": "heartbeat"}


def test_lines_that_have_nothing_in_common_are_given_up() -> None:
    """After some blocks no more time is spent on them; they are decoded all the same."""
    reader = ShapeReader()
    for block in range(4):
        values = [{"type": "heartbeat", "at": T, "consumer": "c", f"k{block}-{n}": n} for n in range(2500)]
        lines = split_lines(encode_ndjson(values).rstrip(b"\n"), np.zeros(1, np.int64))
        assert reader.read(lines) is None
        assert len(decode_records([encode_ndjson(values)]).events) == 2500
    assert reader._failures == 3


@pytest.mark.parametrize(
    "line",
    [
        {"a": None},
        {"a": 1.5},
        {"a": -1},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": 'q"'},
        {},
        {"at": "text"},
        {"queue": 7},
        {"attributes": "x"},
        {"a" * 3000: 1},
    ],
    ids=str,
)
def test_only_flat_lines_of_texts_whole_numbers_and_truths_make_a_template(line: dict[str, Any]) -> None:
    """The rest has no fixed places to cut at, or a wrong type somebody must be told of."""
    assert template_of(json.dumps(line).encode()) is None
    assert template_of(json.dumps({"at": 1, "queue": "q", "x": True}).encode()) is not None
    assert template_of(b'{"a":1,"a":2}') is None
    assert template_of(b'{"a":1} ') is None


def test_numbers_of_every_length_are_read_digit_by_digit() -> None:
    """Up to sixteen digits, next to anything."""
    generator = np.random.default_rng(3)
    for _ in range(300):
        digits = int(generator.integers(1, 20))
        text = "".join(str(generator.integers(0, 10)) for _ in range(digits))
        around = bytes(generator.integers(32, 127, 40).astype(np.uint8))
        source = around[:20] + text.encode() + around[20:]
        buffer = Buffer(source, 0, len(source))
        start = np.array([buffer.first + 20])
        values, good = whole_numbers(buffer, start, start + digits)
        fits = digits <= 16 and (digits == 1 or text[0] != "0")
        assert good[0] == fits
        if fits:
            assert values[0] == int(text)
