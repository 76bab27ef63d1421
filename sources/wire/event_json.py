"""Parse one event at a time: the slow path for what the block parser cannot read.

It checks what a column cannot hold (types, text, integer ranges); the required fields of an event are checked
on whole columns in `validate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sources.events import MAX_ATTRIBUTES_BYTES
from sources.wire.invalid import RefusalError
from sources.wire.schema import PLAIN_SCHEMA

Row = tuple[Any, ...]
"""The values of one event in the order of `PLAIN_SCHEMA`."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""What some editors and Windows tools put before UTF-8 text."""
GZIP: Final = b"\x1f\x8b"

MOST_LEVELS: Final = 400
"""The deepest nesting that is read. What Python can parse depends on its stack, which is deeper in a task than in ingest."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def load_json(raw: bytes) -> Any:
    """Parse `raw` (UTF-8, a byte order mark allowed); raises `RefusalError` naming where it breaks."""
    try:
        text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        if raw.startswith(GZIP):
            raise RefusalError("bad_text", "it is gzip; give the file or the record uncompressed") from None
        raise RefusalError("bad_text", f"not UTF-8 at byte {error.start}; encode events as UTF-8") from None
    if not text.strip():
        raise RefusalError("empty", "the line is blank; leave it out")
    if raw.count(b"[") + raw.count(b"{") > MOST_LEVELS and _levels(_STRING.sub(b"", raw)).max(initial=0) > MOST_LEVELS:
        raise RefusalError("too_deep", "nested too deeply; events are flat but for `attributes`")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusalError("not_json", f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise RefusalError("too_deep", "nested too deeply; events are flat but for `attributes`") from None
    except ValueError:  # int() refuses thousands of digits
        raise RefusalError("out_of_range", "a number has too many digits") from None


def array_elements(raw: bytes) -> list[bytes]:
    """Return the text of each element of a JSON array that is not parsed as a whole; none if its brackets do not match."""
    structure = _STRING.sub(lambda string: b" " * len(string[0]), raw)
    levels = _levels(structure)
    if levels[-1] != 0 or levels[:-1].min() < 1:
        return []
    commas = np.flatnonzero((np.frombuffer(structure, np.uint8) == ord(",")) & (levels == 1)).tolist()
    return [raw[before + 1 : after].strip(b" \t\r\n") for before, after in pairwise([0, *commas, len(raw) - 1])]


def _levels(structure: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many objects and arrays are open after each byte of JSON without its strings."""
    data = np.frombuffer(structure, np.uint8)
    opens, closes = (data == ord("[")) | (data == ord("{")), (data == ord("]")) | (data == ord("}"))
    return np.cumsum(opens.astype(np.int64) - closes)


def read_event(value: Any) -> Row:
    """Return the columns of one parsed event; raises `RefusalError` for a value of a wrong type.

    JSON null is the same as an absent field. A number without a fraction is an integer, a boolean is not.
    """
    if not isinstance(value, Mapping):
        raise RefusalError("not_an_object", f"an event is a JSON object, not {_kind(value)}")
    return tuple(None if (item := value.get(name)) is None else read(name, item) for name, read in _READERS.items())


def rows_to_table(rows: Sequence[Row]) -> pa.Table:
    """Build a table in `PLAIN_SCHEMA` from rows of `read_event`."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(PLAIN_SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for field, column in zip(PLAIN_SCHEMA, columns, strict=True)],
        schema=PLAIN_SCHEMA,
    )


def dump(value: Any) -> bytes:
    """Format a value as JSON for people to read."""
    return json.dumps(value, default=str).encode("ascii")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        fix = ' in quotes: "' + str(value)[:40] + '"' if _is_number(value) else " as text"
        raise RefusalError("wrong_type", f"{name} is {_kind(value)}; send it{fix}")
    _check_encodable(name, value)
    return value


def _integer(name: str, value: Any, bits: int) -> int:
    if not _is_number(value):
        raise RefusalError("wrong_type", f"{name} is {_kind(value)}; send an integer")
    if isinstance(value, float) and not value.is_integer():
        raise RefusalError("wrong_type", f"{name}={value!r} is not an integer; send it without a fraction")
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise RefusalError("out_of_range", f"{name} does not fit {bits} bits")
    return number


def _int64(name: str, value: Any) -> int:
    return _integer(name, value, 64)


def _int32(name: str, value: Any) -> int:
    return _integer(name, value, 32)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusalError("wrong_type", f"{name} is {_kind(value)}; send true or false")
    return value


# A shared encoder: `json.dumps` creates a new one per call, and there is one for each report of a queue.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _attributes(name: str, value: Any) -> str:
    if not isinstance(value, dict):
        raise RefusalError("wrong_type", f"{name} is {_kind(value)}; send a JSON object")
    try:
        text = _encoder.encode(value)
    except ValueError:
        raise RefusalError("out_of_range", f"{name} holds a number that is not finite; leave it out") from None
    except RecursionError:
        raise RefusalError("too_deep", f"{name} is nested too deeply") from None
    _check_encodable(name, text)
    if len(text.encode("utf-8")) > MAX_ATTRIBUTES_BYTES:
        raise RefusalError("too_long", f"{name} is longer than {MAX_ATTRIBUTES_BYTES} bytes; send fewer of them")
    return text


def _check_encodable(name: str, text: str) -> None:
    """Refuse a lone surrogate, which is legal in JSON text but cannot be encoded."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RefusalError("bad_text", f"{name} holds half a surrogate pair; send whole characters") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "an array" if isinstance(value, list) else "an object"


def _reader(field: pa.Field) -> Callable[[str, Any], Any]:
    if field.name == "attributes":
        return _attributes
    if field.type == pa.bool_():
        return _boolean
    if field.type == pa.string():
        return _text
    return _int32 if field.type == pa.int32() else _int64


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {f.name: _reader(f) for f in PLAIN_SCHEMA}
