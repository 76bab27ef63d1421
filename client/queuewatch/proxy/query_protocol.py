"""The Query protocol of SQS, used by SDKs from before late 2023: a form in, XML out."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import escape, unescape

from queuewatch.proxy.requested_attributes import RequestedAttributes, request_all

CONTENT_TYPE: Final = "application/x-www-form-urlencoded"

_LISTS: Final = {
    "AttributeName": "AttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
}
_ENTRY: Final = "BatchRequestEntry"
_NUMBERED: Final = "\0"
"""The key for custom attributes by number; no real field has this name."""
_MAX_VALUE_BYTES: Final = 16_384
"""Longer values are bodies and custom attributes, which are not needed and costly to decode."""

_QUEUE_URL: Final = re.compile(rb"(?<=<QueueUrl>)[^<]+(?=</QueueUrl>)")


def parse(body: bytes) -> dict[str, Any]:
    """Return the parameters of a call in the JSON protocol's shape, without message bodies."""
    params: dict[str, Any] = {}
    entries: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in _fields(body):
        head, _, rest = name.partition(".")
        if head in _LISTS and "." not in rest:
            params.setdefault(_LISTS[head], []).append(value)
        elif head.endswith(_ENTRY):
            index, _, field = rest.partition(".")
            _put(entries[index], field, value)
        else:
            _put(params, name, value)
    if entries:
        params["Entries"] = [_finished(entry) for entry in entries.values()]
    return _finished(params)


def _fields(body: bytes) -> Iterator[tuple[str, str]]:
    for pair in body.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name and b"%00" not in name and len(value) <= _MAX_VALUE_BYTES:
            yield unquote_plus(name.decode("ascii", "replace")), unquote_plus(value.decode("ascii", "replace"))


def _put(into: dict[str, Any], field: str, value: str) -> None:
    if not field.startswith("MessageAttribute."):
        if field != "MessageBody":
            into[field] = value
        return
    _, index, rest = field.split(".", 2)
    into.setdefault(_NUMBERED, {}).setdefault(index, {})[rest] = value


def _finished(entry: dict[str, Any]) -> dict[str, Any]:
    """Return custom attributes by name, as in the JSON protocol."""
    numbered = entry.pop(_NUMBERED, {}).values()
    if numbered:
        entry["MessageAttributes"] = {
            found["Name"]: {"StringValue": found["Value.StringValue"]}
            for found in numbered
            if "Name" in found and "Value.StringValue" in found
        }
    return entry


def with_queue_url(body: bytes, url: str) -> bytes:
    """Return the body with another queue URL, otherwise byte for byte the same."""
    pairs = body.split(b"&")
    return b"&".join(b"QueueUrl=" + quote_plus(url).encode() if pair.startswith(b"QueueUrl=") else pair for pair in pairs)


def asking_for_all(body: bytes, params: Mapping[str, Any], lineage_attribute: str | None) -> tuple[bytes, RequestedAttributes]:
    """Return the call with all attributes that telemetry needs requested, and what the application itself requested."""
    asked = request_all(params, lineage_attribute)
    more = []
    if asked.system is not None:
        # Numbered after those listed by the application; numbers may be skipped but not used twice.
        name = "MessageSystemAttributeName" if "MessageSystemAttributeNames" in params else "AttributeName"
        more.append(f"{name}.{_highest_number(body, name) + 1}=All")
    if asked.hide_message_attributes and lineage_attribute is not None:
        more.append(f"MessageAttributeName.1={quote_plus(lineage_attribute)}")
    return b"&".join([body, *(field.encode() for field in more)]), asked


def _highest_number(body: bytes, name: str) -> int:
    parts = [field.partition(".") for field, _ in _fields(body)]
    return max((int(number) for head, _, number in parts if head == name and number.isdecimal()), default=0)


def parse_answer(operation: str, body: bytes) -> dict[str, Any]:
    """Return the response to a call in the JSON protocol's shape. Raises `ValueError`."""
    if operation == "ReceiveMessage":
        received = _Received(body)
        return _Answer(received.messages, received.elements)
    answer: dict[str, Any] = {}
    for result in _parse_xml(body):
        for child in result if _tag(result) == f"{operation}Result" else ():
            if _tag(child).endswith("BatchResultEntry"):
                answer.setdefault("Successful", []).append(_texts(child))
            elif _tag(child) == "BatchResultErrorEntry":
                answer.setdefault("Failed", []).append(_texts(child))
            else:
                answer[_tag(child)] = child.text or ""
    return answer


def parse_error(body: bytes) -> dict[str, Any]:
    """Return `Code` and `Message` of an error response, among others. Raises `ValueError`."""
    return next((_texts(child) for child in _parse_xml(body) if _tag(child) == "Error"), {})


def _parse_xml(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)  # noqa: S314 -- an answer of the configured endpoint; expat limits entities
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def _texts(element: ElementTree.Element) -> dict[str, str]:
    return {_tag(child): child.text or "" for child in element}


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def strip(body: bytes, answer: Mapping[str, Any], asked: RequestedAttributes) -> bytes:
    """Return the response to a ReceiveMessage without attributes that were not requested, otherwise byte for byte the same."""
    if not asked.changes or not answer.get("Messages"):
        return body
    kept = []
    position = 0
    for start, end, tag, name in answer.elements if isinstance(answer, _Answer) else ():
        unwanted_system = tag == "Attribute" and asked.system is not None and name not in asked.system
        if unwanted_system or (asked.hide_message_attributes and tag in ("MessageAttribute", "MD5OfMessageAttributes")):
            kept.append(body[position:start])
            position = end
    kept.append(body[position:])
    return b"".join(kept)


_Element = tuple[int, int, str, str]
"""Start, end, tag and attribute name of a direct child of a message."""


class _Answer(dict[str, Any]):
    """A response to ReceiveMessage with the byte positions of its parts."""

    def __init__(self, messages: list[dict[str, Any]], elements: list[_Element]) -> None:
        super().__init__({"Messages": messages} if messages else {})
        self.elements = elements


class _Received:
    """The messages of a response to ReceiveMessage, with the byte positions of their attributes.

    Unwanted elements are cut out of the bytes. Writing new XML would lose a carriage return in a message body.
    """

    def __init__(self, body: bytes) -> None:
        self.elements: list[_Element] = []
        self.messages: list[dict[str, Any]] = []
        self._body = body
        self._path: list[str] = []
        self._text: list[str] = []
        self._fields: dict[str, str] = {}
        self._start = 0
        self._parser = expat.ParserCreate(encoding="utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        try:
            self._parser.Parse(body, True)
        except expat.ExpatError as error:
            raise ValueError(str(error)) from error

    def _begin(self, tag: str, _attributes: Mapping[str, str]) -> None:
        self._path.append(tag.rpartition(":")[2])
        self._text.clear()
        if len(self._path) == 3 and tag == "Message":
            self.messages.append({})
        elif len(self._path) == 4:
            self._start = self._parser.CurrentByteIndex
            self._fields = {}

    def _end(self, _tag: str) -> None:
        text = "".join(self._text)
        self._text.clear()
        tag = self._path.pop()
        if self._path[2:3] != ["Message"]:
            return
        if len(self._path) > 3:
            self._fields[tag] = text
            return
        if len(self._path) < 3:
            return
        message = self.messages[-1]
        if tag == "Attribute":
            message.setdefault("Attributes", {})[self._fields.get("Name", "")] = self._fields.get("Value", "")
        elif tag == "MessageAttribute":
            named = message.setdefault("MessageAttributes", {})
            named[self._fields.get("Name", "")] = {"StringValue": self._fields.get("StringValue")}
        elif tag != "Body":
            message[tag] = text
        end = self._body.index(b">", self._parser.CurrentByteIndex) + 1
        self.elements.append((self._start, end, tag, self._fields.get("Name", "")))


def with_queue_urls(body: bytes, change: Callable[[str], str]) -> bytes:
    """Return a response with other queue URLs, otherwise byte for byte the same."""
    return _QUEUE_URL.sub(lambda found: escape(change(unescape(found[0].decode()))).encode(), body)


def error(code: str, message: str, *, sender: bool) -> tuple[bytes, list[tuple[str, str]]]:
    """Return body and headers of an error in SQS' format."""
    request_id = str(uuid.uuid4())
    body = (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        f"<Type>{'Sender' if sender else 'Receiver'}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        f"<Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return body.encode(), [("Content-Type", "text/xml"), ("x-amzn-RequestId", request_id)]
