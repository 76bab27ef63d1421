"""Bodies that share a file: the job reads from it exactly the events that were acknowledged to each sender."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.http import IngestSettings, Spool
from sinks.http.budget import ByteBudget, Share
from sinks.http.errors import ApiError
from sinks.http.ingest import _take
from sinks.http.staging import BodyKind, _PendingBody
from sources.wire import decode_records
from tests.sinks.fakes import NOW_MS
from tests.sinks.http.ingesting import ids, spooled

FIELDS = {"v": "1", "type": '"sent"', "at": str(NOW_MS), "system": '"aws_sqs"', "queue": '"orders"'}


class _Disk:
    """A stage that holds the bodies until they are written together."""

    def __init__(self) -> None:
        self.bodies: list[_PendingBody] = []

    def put(self, body: bytes, kind: BodyKind) -> None:
        self.bodies.append(_PendingBody(body, kind))


def _event(name: str, **more: str) -> str:
    return "{" + ",".join(f'"{key}":{value}' for key, value in (FIELDS | {"message_id": json.dumps(name)} | more).items()) + "}"


def _acknowledged_and_read(bodies: list[bytes]) -> tuple[list[str], list[str], int]:
    """Return the ids that were accepted, those in the files, and the number of files."""
    disk, accepted = _Disk(), []
    with TemporaryDirectory() as folder, Share(ByteBudget(1 << 30)) as share:
        for body in bodies:
            try:
                taken = _take(body, False, IngestSettings(disk), share)
            except ApiError:
                continue
            accepted += taken.decoded.events["message_id"].to_pylist()
        Spool(Path(folder))._write(disk.bodies)
        files = spooled(Path(folder))
        return sorted(accepted), ids(files), len(files)


GOOD = f"{_event('good')}\n".encode()


@pytest.mark.parametrize(
    "others",
    [
        [f"[{_event('a', x='9' * 5000)},\n{_event('b')},\n{_event('c')}]".encode()],
        [f"[{_event('a', x='[' * 3000 + ']' * 3000)},\n{_event('b')},\n{_event('c')}]".encode()],
        [f"[{_event('a', x='+')},\n{_event('b')},\n{_event('c')}\n]".encode().replace(b"+", b'"\xff"')],
        [f"[1]\n{_event('a')}".encode(), f"{_event('b')}\n[1]".encode()],
        [f"[[1],{_event('a')},[1]]".encode()],
        [f'{{"x":[\n {_event("a")}\n'.encode(), f",\n {_event('b')}\n]}}".encode()],
        [_event("a", attributes=f"\n{_event('b')}\n").encode()],
    ],
    ids=[
        "a number of 5000 digits",
        "nested too deeply",
        "not UTF-8",
        "the file would begin and end with brackets",
        "the lines of one body would begin and end with brackets",
        "together two bodies would be one object",
        "attributes that would be an event",
    ],
)
def test_an_acknowledged_event_is_read_whatever_shares_its_file(others: list[bytes]) -> None:
    """One odd element costs neither the events beside it nor those of another sender."""
    for bodies in (others, [GOOD, *others], [*others, GOOD], [others[0], GOOD, *others[1:]]):
        accepted, read, _ = _acknowledged_and_read(bodies)
        assert read == accepted
        assert len(accepted) > len(bodies) - len(others)


blanks = st.sampled_from(["", "", " ", "\n", "\r\n", "\n\n\t", "\r"])
oddities = st.sampled_from(
    [
        "1",
        '"}, {"',
        '"},\\n{"',
        '"a\nb"',
        '"\udc80"',
        '"\\ud800"',
        "9" * 5000,
        "[" * 3000 + "]" * 3000,
        '{"a":\n[1,\n2]}',
        "nil",
        '"ü"',
        "[1",
        "]",
    ]
)
elements = st.sampled_from(
    ["1", "null", "[]", "[1]", "{}", '"x"', "[", "]", "{", "}", "\ufeff", "", " ", '{"v":1,"type":"sent"}']
)


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Generate bodies of good and bad events, with line breaks wherever JSON allows them."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        parts = []
        for at in range(draw(st.integers(1, 4))):
            event = _event(f"{number}.{at}", **({"x": draw(oddities)} if draw(st.booleans()) else {}))
            if draw(st.integers(0, 3)) == 0:
                event = event.replace(",", draw(blanks) + "," + draw(blanks)).replace(":", draw(blanks) + ":" + draw(blanks), 1)
            parts.append(draw(blanks) + (draw(elements) if draw(st.integers(0, 5)) == 0 else event) + draw(blanks))
        body = draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(parts) if draw(st.booleans()) else f"[{','.join(parts)}]"
        made.append((draw(st.sampled_from(["", "", "\ufeff", "\n"])) + body + draw(blanks)).encode("utf-8", "surrogateescape"))
    return made


@pytest.mark.slow
@settings(max_examples=300)
@given(bodies())
def test_the_job_reads_exactly_what_was_acknowledged(bodies: list[bytes]) -> None:
    """It is also what the parser accepts of each body as it came."""
    accepted, read, _ = _acknowledged_and_read(bodies)
    assert read == accepted
    assert accepted == sorted(decode_records(bodies).events["message_id"].to_pylist())


def test_lines_of_objects_and_their_array_share_one_file() -> None:
    """An array of small senders does not need a file of its own, however it is laid out."""
    over_lines = _event("b", x="{}").replace(",", ",\n")
    array = f"[\n {_event('a')},\r\n{over_lines}\n]".encode()
    object_over_lines = _event("c").replace(",", ",\n").encode()
    with_mark = b"\xef\xbb\xbf" + _event("d").encode() + b"\r\n\r\n" + _event("e").encode()
    accepted, read, files = _acknowledged_and_read([GOOD, array, object_over_lines, with_mark, GOOD])
    assert read == accepted == ["a", "b", "c", "d", "e", "good", "good"]
    assert files == 1
