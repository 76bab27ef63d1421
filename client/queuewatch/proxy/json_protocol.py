"""The JSON protocol of SQS: `X-Amz-Target: AmazonSQS.<operation>`, JSON in and out."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

from queuewatch.proxy.requested_attributes import RequestedAttributes, request_all

CONTENT_TYPE: Final = "application/x-amz-json-1.0"

# Inside a JSON string every quote is escaped, so these match only a member's name and value.
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_QUEUE_URL: Final = re.compile(rb'(?<!\\)("QueueUrl"\s*:\s*)' + _STRING)
_ATTRIBUTES: Final = re.compile(rb'("Attributes"\s*:\s*)\{[^"{}]*(?:' + _STRING + rb'[^"{}]*)*\}(\s*,\s*)?')
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_URL_LISTS: Final = ("QueueUrls", "queueUrls")
_MODERN: Final = "MessageSystemAttributeNames"
_DEPRECATED: Final = "AttributeNames"
_ALL: Final = b',"MessageSystemAttributeNames":["All"]}'


def parse(body: bytes) -> dict[str, Any]:
    """Return the parameters of a call. Raises `ValueError`."""
    params = json.loads(body or b"{}")
    if not isinstance(params, dict):
        raise ValueError("not a JSON object")
    return params


def with_queue_url(body: bytes, url: str) -> bytes:
    """Return the body with another queue URL, otherwise byte for byte the same."""
    found = _QUEUE_URL.search(body, max(0, body.find(b'"QueueUrl"')))
    if found is None:
        return body
    return b"".join((body[: found.end(1)], json.dumps(url).encode(), body[found.end() :]))


def asking_for_all(body: bytes, params: Mapping[str, Any], lineage_attribute: str | None) -> tuple[bytes, RequestedAttributes]:
    """Return the call with all attributes that telemetry needs requested, and what the application itself requested."""
    asked = request_all(params, lineage_attribute)
    if not asked.changes:
        return body, asked
    if params and not asked.hide_message_attributes and params.keys().isdisjoint((_MODERN, _DEPRECATED)):
        return body.rstrip()[:-1] + _ALL, asked
    changed = dict(params)
    if asked.system is not None:
        name = _DEPRECATED if _DEPRECATED in params and _MODERN not in params else _MODERN
        changed[name] = [*(params.get(name) or ()), "All"]
    if asked.hide_message_attributes:
        changed["MessageAttributeNames"] = [lineage_attribute]
    return _encode(changed), asked


def parse_answer(_operation: str, body: bytes) -> dict[str, Any]:
    """Return the parsed response to a call. Raises `ValueError`."""
    return parse(body)


def parse_error(body: bytes) -> dict[str, Any]:
    """Return `Code` and `Message` of an error response. Raises `ValueError`."""
    answer = parse(body)
    # The type may have a prefix, "com.amazonaws.sqs#ReceiptHandleIsInvalid", and the text be called Message.
    code = str(answer.get("__type", "")).rpartition("#")[2]
    return {"Code": code, "Message": answer.get("message", answer.get("Message", ""))}


def strip(body: bytes, answer: Mapping[str, Any], asked: RequestedAttributes) -> bytes:
    """Return the response to a ReceiveMessage without attributes that the application did not request."""
    messages = answer.get("Messages")
    if not asked.changes or not messages:
        return body
    if asked.system is not None and not asked.hide_message_attributes:
        cut = _cut(body, [message["Attributes"] for message in messages if message.get("Attributes") is not None], asked.system)
        if cut is not None:
            return cut
    return _encode({**answer, "Messages": [_stripped(message, asked) for message in messages]})


def _cut(body: bytes, attributes: Sequence[Mapping[str, str]], kept: Set[str]) -> bytes | None:
    """Return the body without the messages' system attributes that are not in `kept`, otherwise byte for byte the same.

    Returns None if they cannot be located with certainty, because a custom attribute is called `Attributes` too.
    """
    found = list(_ATTRIBUTES.finditer(body))
    if len(found) != len(attributes):
        return None
    parts: list[bytes] = []
    position = 0
    for match, values in zip(found, attributes, strict=True):
        before, comma = body[position : match.start()], match[2] or b""
        left = {name: value for name, value in values.items() if name in kept}
        if left:
            before += match[1] + _encode(left) + comma
        elif not comma:  # they were the last member, after a comma
            before = before.rstrip().removesuffix(b",")
        parts.append(before)
        position = match.end()
    parts.append(body[position:])
    return b"".join(parts)


def _stripped(message: Mapping[str, Any], asked: RequestedAttributes) -> dict[str, Any]:
    kept = dict(message)
    if asked.system is not None and kept.get("Attributes") is not None:
        attributes = {name: value for name, value in kept.pop("Attributes").items() if name in asked.system}
        if attributes:
            kept["Attributes"] = attributes
    if asked.hide_message_attributes:
        kept.pop("MessageAttributes", None)
        kept.pop("MD5OfMessageAttributes", None)
    return kept


def with_queue_urls(body: bytes, change: Callable[[str], str]) -> bytes:
    """Return a response with other queue URLs."""
    answer = parse(body)
    if isinstance(answer.get("QueueUrl"), str):
        answer["QueueUrl"] = change(answer["QueueUrl"])
    for name in _URL_LISTS:
        if isinstance(answer.get(name), list):
            answer[name] = [change(url) for url in answer[name]]
    return _encode(answer)


def error(code: str, message: str, *, sender: bool) -> tuple[bytes, list[tuple[str, str]]]:
    """Return body and headers of an error in SQS' format."""
    body = _encode({"__type": f"com.amazonaws.sqs#{code}", "message": message})
    fault = "Sender" if sender else "Receiver"
    return body, [
        ("Content-Type", CONTENT_TYPE),
        ("x-amzn-RequestId", str(uuid.uuid4())),
        ("x-amzn-query-error", f"{code};{fault}"),
    ]


def _encode(value: object) -> bytes:
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which must be escaped in JSON
        return json.dumps(value, separators=(",", ":")).encode()
