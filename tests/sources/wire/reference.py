"""A slow, simple reference decoder for JSON records: one event at a time, without columns or code of the fast decoder."""

from __future__ import annotations

import json
import re
from typing import Any

TEXT = (
    "type",
    "system",
    "scope",
    "queue",
    "message_id",
    "group",
    "sequence",
    "consumer",
    "to_queue",
    "from_queue",
    "new_message_id",
    "reason",
    "batch_id",
)
INTS = ["v", "at", "sent_at", "first_received_at", "invisible_until", "visible_at", "receive_count"]
ORDER = ["v", *TEXT[:1], "at", *TEXT[1:], *INTS[2:], "ordered", "attributes"]
MESSAGE = ["sent", "received", "extended", "released", "deleted", "dead_lettered", "redriven", "expired", "dropped", "outlived"]
TYPES = [*MESSAGE, "purged", "batch", "queue_state", "consumer_state", "heartbeat"]
NEEDS = {
    "at": TYPES,
    "system": TYPES[:-1],
    "queue": [*MESSAGE, "purged", "batch", "queue_state"],
    "message_id": MESSAGE,
    "consumer": ["consumer_state", "heartbeat"],
    "attributes": ["queue_state", "consumer_state"],
}


class Refused(Exception):
    """The reason why an event is refused."""


def decode_slowly(
    values: list[bytes | None],
) -> tuple[list[tuple[int, int, dict[str, Any]]], list[tuple[int, int | None, str]]]:
    """Return events as (record, line, fields) and refusals as (record, line, reason)."""
    events: list[tuple[int, int, dict[str, Any]]] = []
    refused: list[tuple[int, int | None, str]] = []
    for record, value in enumerate(values):
        for line, item in _items(value or b""):
            try:
                if isinstance(item, Refused):
                    raise item
                events.append((record, int(line or 0), read(item)))
            except Refused as why:
                refused.append((record, line, str(why)))
    return events, refused


def _items(value: bytes) -> list[tuple[int | None, Any]]:
    """Return line and parsed value (or refusal) for everything in one record."""
    text = value.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    if not text:
        return [(None, Refused("empty"))]
    lines = [(n, line) for n, line in enumerate(value.split(b"\n"), start=1) if line.removesuffix(b"\r")]
    array = text[:1] == b"[" and text[-1:] == b"]" and value[:1] != b"{"
    whole = parse(text if array else value)
    if array:
        if isinstance(whole, list):
            return list(enumerate(whole, start=1))
        inner = re.sub(rb"\}\s*,\s*\{", b"}\n{", text[1:-1].replace(b"\n", b"\r").strip(b" \t\r\n"))
        lines = list(enumerate(inner.split(b"\n"), start=1))
        if not any(isinstance(parse(line), dict) for _, line in lines):
            return [(None if len(lines) > 1 or isinstance(whole, Refused) else 1, whole)]
    elif len(lines) > 1 and not any(line[:1] == b"{" and line.removesuffix(b"\r")[-1:] == b"}" for _, line in lines):
        if isinstance(whole, list):
            return list(enumerate(whole, start=1))
        if not isinstance(whole, Refused):
            return [(1, whole)]
        if not any(isinstance(parse(line), dict) for _, line in lines):
            return [(None, whole)]
    return [(n, parse(line)) for n, line in lines]


def parse(raw: bytes) -> Any:
    """Parse JSON, or return the refusal."""
    try:
        text = raw.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        return Refused("bad_text")
    if not text.strip():
        return Refused("empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return Refused("not_json")


def read(event: Any) -> dict[str, Any]:
    """Return the fields of one event. Raises `Refused`."""
    if not isinstance(event, dict):
        raise Refused("not_an_object")
    found = {name: check(name, event[name]) for name in ORDER if event.get(name) is not None}
    if found.pop("v", 1) != 1:
        raise Refused("unsupported_version")
    if "type" not in found:
        raise Refused("missing_field")
    kind = found["type"]
    if kind not in TYPES:
        raise Refused("unknown_type")
    for name, kinds in NEEDS.items():
        if kind in kinds and found.get(name) in (None, ""):
            raise Refused("missing_field")
    for name in ("at", "sent_at", "first_received_at", "invisible_until", "visible_at"):
        if name in found and not 978307200000 <= found[name] <= 4102444800000:
            raise Refused("out_of_range")
    if found.get("receive_count", 0) < 0:
        raise Refused("out_of_range")
    for name in TEXT:
        if name not in ("type", "reason") and len(found.get(name, "")) > 512:
            raise Refused("too_long")
    if "reason" in found:
        found["reason"] = found["reason"][:512]
    return found


def check(name: str, value: Any) -> Any:
    """Convert one value to its column's type. Raises `Refused`."""
    if name in TEXT:
        if not isinstance(value, str):
            raise Refused("wrong_type")
        return encodable(value)
    if name == "ordered":
        if not isinstance(value, bool):
            raise Refused("wrong_type")
        return value
    if name == "attributes":
        if not isinstance(value, dict):
            raise Refused("wrong_type")
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise Refused("out_of_range") from None
        encodable(text)
        return json.loads(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("wrong_type")
    if isinstance(value, float) and not value.is_integer():
        raise Refused("wrong_type")
    bits = 31 if name == "receive_count" else 63
    if not -(2**bits) <= int(value) < 2**bits:
        raise Refused("out_of_range")
    return int(value)


def encodable(text: str) -> str:
    """Return the text if UTF-8 can encode it. Raises `Refused`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("bad_text") from None
    return text
