"""The fast decoder agrees with the reference decoder, whatever the records contain."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sources.wire import blocks, decode_records
from sources.wire.arrow import STREAM_MARK
from tests.sources.wire.reference import INTS, TEXT, TYPES, decode_slowly

T = 1_760_000_000_000
names = st.sampled_from(["orders", "orders-dlq", "a.fifo", "ü-queue", 'q"uote', "b\\s", "x},{y", "}null", "", "é" * 513])
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.just("\ud800"),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.one_of(st.none(), st.integers(), st.text(max_size=2)), max_size=2),
    st.just([{}, {"a": {}}]),
)
times = st.one_of(st.integers(T, T + 10**6), st.sampled_from([T // 1000, T * 1000, 0, -1, float(T), T + 0.5]))


@st.composite
def likely_events(draw: st.DrawFn) -> dict[str, Any]:
    """Generate mostly valid events, some with a defect."""
    event: dict[str, Any] = {
        "v": 1,
        "type": draw(st.sampled_from(TYPES)),
        "at": draw(st.integers(T, T + 1000)),
        "system": "aws_sqs",
        "queue": draw(names),
        "message_id": draw(st.sampled_from(["m1", "m2", "0e9b9a4e-7d2c-4c07-9a34-6f0d2a6c1e77", ""])),
        "consumer": "worker-1",
    }
    for name in draw(st.lists(st.sampled_from([*TEXT, *INTS, "ordered", "attributes", "unknown"]), max_size=3)):
        if name in INTS[1:6]:
            event[name] = draw(times)
        elif name == "receive_count":
            event[name] = draw(st.integers(-1, 5))
        elif name == "attributes":
            event[name] = draw(st.dictionaries(names, st.integers(), max_size=2))
        elif name == "unknown":
            event[name] = draw(odd)
        elif name in TEXT[1:]:
            event[name] = draw(names)
    for name in draw(st.lists(st.sampled_from([*event, "attributes", "receive_count", "ordered"]), max_size=1)):
        if draw(st.booleans()):
            event[name] = draw(odd)
        else:
            event.pop(name, None)
    return event


def _dumped(event: Any, style: str) -> bytes:
    if style == "compact":
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    elif style == "pretty":
        text = json.dumps(event, indent=2)
    else:
        text = json.dumps(event)
    return text.encode("utf-8", "surrogatepass")


garbage = st.one_of(
    st.binary(max_size=12),
    st.text(alphabet='{}[]",:\n\r\t 0x\x00\\anul', max_size=14).map(str.encode),
    st.sampled_from([b"null", b"5", b"{}", b"[]", b"{", b"}", b"[null]", b'{"type":"sent"}{"type":"sent"}', b"{}null{}"]),
)
styles = st.sampled_from(["compact", "spaced"])


@st.composite
def records(draw: st.DrawFn) -> bytes | None:
    """Generate one record value in any of the forms, often damaged."""
    events = draw(st.lists(likely_events(), min_size=1, max_size=5))
    style = draw(styles)
    form = draw(st.sampled_from(["ndjson", "ndjson", "one", "array", "pretty", "pretty array", "garbage", "null"]))
    if form == "null":
        return None
    if form == "garbage":
        return draw(garbage)
    if form == "one":
        value = _dumped(events[0], style)
    elif form == "array":
        value = _dumped(events, style)
    elif form == "pretty":
        value = _dumped(events[0], "pretty")
    elif form == "pretty array":
        value = _dumped(events, "pretty")
    else:
        lines = [_dumped(event, style) for event in events]
        for piece in draw(st.lists(garbage, max_size=2)):
            lines.insert(draw(st.integers(0, len(lines))), piece)
        value = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"])).join(lines)
        value += draw(st.sampled_from([b"", b"\n"]))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(value)))
        value = value[:at] + draw(garbage) + value[at + draw(st.integers(0, 3)) :]
    return draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b" ", b"\n"])) + value


def _is_no_arrow(value: bytes | None) -> bool:
    """Whether the reference decoder, which knows no Arrow streams, can decode a record."""
    return value is None or not value.startswith(STREAM_MARK)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if value is not None}
    if "attributes" in found:
        found["attributes"] = json.loads(found["attributes"])
    return found


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=repr)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(records().filter(_is_no_arrow), max_size=4))
@example([b"null"])
@example([b"{}null{}\n{}"])
@example([b'{"type":"sent"}\x00{"type":"sent"}'])
@example([b'[{"queue":"x},{y","at":1}]'])
@example([b'[{"type":"heartbeat","at":1760000000000,"consumer":"x},{y"},{"a":"x},{y"}]'])
@example([b'[{"queue":"a\nb"}]'])
@example([b'{"\\u0061t":1760000000000,"type":"heartbeat","consumer":"c"}'])
@example([b'{"type":"heartbeat","at":1760000000000,"consumer":"c","at":1760000000001}'])
@example([b'{"x":1e999}', b'{"x":NaN}', b'{"at":1e400}', b'{"at":NaN}'])
def test_the_fast_decoder_agrees_with_the_reference_decoder(values: list[bytes | None]) -> None:
    """Both find the same events at the same positions, and refuse the same ones for the same reasons."""
    events, refused = decode_slowly(values)
    for few, form in ((0, values), (blocks.FEW_LINES, values), (0, pa.array(values, pa.binary()))):
        with patch.object(blocks, "FEW_LINES", few):
            decoded = decode_records(form)
        rows = zip(decoded.record_index.tolist(), decoded.line.tolist(), decoded.events.to_pylist(), strict=True)
        assert _sorted([(r, line, _plain(row)) for r, line, row in rows]) == _sorted(events)
        assert _sorted([(i.record, i.line, i.reason) for i in decoded.invalid]) == _sorted(refused)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(likely_events(), min_size=1, max_size=6), st.integers(0, 3), styles)
def test_a_defect_in_a_large_record_costs_only_its_line(odd_ones: list[dict[str, Any]], at: int, style: str) -> None:
    """Thousands of valid lines surround doubtful ones: all are read, each doubtful one as if it were alone."""
    good = {"v": 1, "type": "deleted", "at": T, "system": "aws_sqs", "queue": "orders", "message_id": "m"}
    lines = [_dumped(good, style)] * 1400
    for n, event in enumerate(odd_ones):
        lines.insert((at * 400 + 97 * n) % len(lines), _dumped(event, style))
    values = [b"\n".join(lines)]
    decoded = decode_records(values)
    events, refused = decode_slowly(list(values))
    assert sorted(decoded.line.tolist()) == sorted(line for _, line, _ in events)
    assert _sorted([(i.line, i.reason) for i in decoded.invalid]) == _sorted([(n, why) for _, n, why in refused])
