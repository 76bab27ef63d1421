"""The stream is cut into frames as stomp.py cuts it, wherever the chunks end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stomp.utils import parse_frame

from sources.activemq.frames import FrameCutter, parse_headers

CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.3.1\n\n\0"
RECEIPT = b"RECEIPT\nreceipt-id:advisories\n\n\0"


def message(number: int, body: bytes, *, counted: bool) -> bytes:
    """Return a MESSAGE frame, with or without a content length."""
    head = f"MESSAGE\ndestination:/topic/a.b\nname with \\c\\\\\\n:v\\c{number}\nsubscription:1\n".encode()
    length = f"content-length:{len(body)}\n".encode() if counted else b""
    return head + length + b"\n" + body + b"\0"


bodies = st.binary(max_size=40)
uncounted = bodies.map(lambda body: body.replace(b"\0", b"x"))
frames = st.one_of(
    st.tuples(st.integers(0, 99), bodies).map(lambda t: message(t[0], t[1], counted=True)),
    st.tuples(st.integers(0, 99), uncounted).map(lambda t: message(t[0], t[1], counted=False)),
    st.sampled_from([CONNECTED, RECEIPT]),
)


@given(st.lists(st.tuples(frames, st.sampled_from([b"", b"\n", b"\n\n"])), max_size=8), st.data())
def test_any_stream_in_any_chunks_gives_the_same_frames(parts: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(frame + after for frame, after in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    cutter = FrameCutter()
    messages, others = [], b""
    for chunk in chunks:
        found, rest = cutter.feed(chunk)
        messages += found
        others += rest
    expected = [parse_frame(frame[:-1]) for frame, _ in parts if frame.startswith(b"MESSAGE")]
    assert messages == [(frame.headers, frame.body) for frame in expected]
    handed_on = b"".join(frame for frame, _ in parts if not frame.startswith(b"MESSAGE"))
    assert others.replace(b"\n", b"") == handed_on.replace(b"\n", b"")


def test_other_frames_are_passed_on_whole() -> None:
    cutter = FrameCutter()
    assert cutter.feed(CONNECTED[:20]) == ([], b"")
    assert cutter.feed(CONNECTED[20:] + b"\n") == ([], CONNECTED + b"\n")


def test_a_heartbeat_is_passed_on() -> None:
    assert FrameCutter().feed(b"\n") == ([], b"\n")


def test_lines_may_end_with_a_carriage_return() -> None:
    [(headers, body)], _ = FrameCutter().feed(b"MESSAGE\r\na:1\r\nb:x\\cy\r\n\r\nbody\0")
    assert (headers, body) == ({"a": "1", "b": "x:y"}, b"body")


def test_the_first_of_repeated_headers_is_used() -> None:
    assert parse_headers(b"MESSAGE\na:1\na:2") == {"a": "1"}


@pytest.mark.parametrize("length", [b"-45", b"x", b""])
def test_a_content_length_that_is_no_number_of_bytes_is_an_error(length: bytes) -> None:
    """With a negative one the same frame would be cut off again and again."""
    with pytest.raises(ValueError, match=r"content-length|invalid literal"):
        FrameCutter().feed(b"MESSAGE\ndestination:/a\ncontent-length:" + length + b"\n\nbody\0")


@pytest.mark.parametrize("head", [b"a:" + b"x" * 900 + b"\n", b"\n" + b"x" * 900, b"content-length:1001\n"])
def test_a_frame_that_is_too_long_is_an_error(head: bytes) -> None:
    """It would be kept in memory, and every later frame in it, until its end comes."""
    cutter = FrameCutter(1_000)
    cutter.feed(b"MESSAGE\ndestination:/a\n" + head)
    with pytest.raises(ValueError, match="longer than 1,000 bytes"):
        cutter.feed(b"\n" + b"x" * 100)
